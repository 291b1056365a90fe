"""`python -m api.cli` is `om`: how `om up` and `om demo` start their own processes."""

from __future__ import annotations

from api.cli import main

if __name__ == "__main__":
    main()
