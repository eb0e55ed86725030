"""`python -m fedsash` is the command `fedsash`."""

import sys

from .lab.cli import main

sys.exit(main())
