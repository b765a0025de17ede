"""A stand-in for upstream's registry of servable models.

As in upstream, the name of a class is the result of `sax_registration_name`.
Without a result, it is the module and the name of the class. A later class
replaces an earlier one of the same name.
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
