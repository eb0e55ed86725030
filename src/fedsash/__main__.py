"""`python -m fedsash` is the command `fedsash`."""

import sys

from .cli import main

sys.exit(main())
