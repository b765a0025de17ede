"""Settings of rules_python that .bazelrc names."""

def _string_flag_impl(_):
    return []

string_flag = rule(
    implementation = _string_flag_impl,
    build_setting = config.string(flag = True),
    doc = "A setting that is accepted, and that nothing here reads.",
)
