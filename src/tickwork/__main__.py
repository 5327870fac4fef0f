"""``python -m tickwork`` is the command ``tickwork``."""

from tickwork.cli.main import main

if __name__ == "__main__":
    main()
