"""What a running job shows: log lines, the live display, figures and results. No decisions."""
