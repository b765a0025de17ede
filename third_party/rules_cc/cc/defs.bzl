"""The C++ rules that Bazel's own tools load, backed by the native ones."""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library

def _without_sources(name, **kwargs):
    """A target of that name which nothing here reads the content of."""
    native.filegroup(name = name)

cc_flags_supplier = _without_sources
compiler_flag = _without_sources
