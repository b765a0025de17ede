"""The version of the wheel and the images, as in saxml_ext/common/program.py."""

VERSION = "1.1.0"
