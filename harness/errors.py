"""The error that ends a job of the harness."""

from serve import errors

# The harness starts its cells by serve's code, and their failures are its own.
HarnessError = errors.ServeError
