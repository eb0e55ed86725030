"""What people see of runs that have ended: tables that compare them, and one page with all of their pictures."""
