"""Stand-in for upstream's registry of servable models.

Names a class as upstream does: by `sax_registration_name` where that answers,
else by its module and name. A later class of a name takes its place.
"""

_by_name: dict[str, type] = {}


def full_registration_name(model_class: type) -> str:
  custom = getattr(model_class, 'sax_registration_name', lambda: None)()
  return custom or f'{model_class.__module__}.{model_class.__name__}'


def register(model_class: type) -> type:
  _by_name[full_registration_name(model_class)] = model_class
  return model_class


def get(model_name: str) -> type | None:
  return _by_name.get(model_name)


def get_all() -> dict[str, type]:
  return _by_name
