"""The version of the wheel and the images; of programs saxml_ext/common/program.py."""

VERSION = "1.1.0"
