"""`python -m fedsash` is the command `fedsash`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]  # Python has put the working directory there: no file in it may replace a library

from .lab.cli import main

sys.exit(main())
