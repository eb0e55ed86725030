"""What a setting is: its type, limits, meaning and name in files; errors, identity, and code of one's own."""
