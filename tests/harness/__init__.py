"""What iloader's integration and boot tests are written with. Standard library only; see tests/README.md."""
