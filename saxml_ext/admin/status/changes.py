"""Publishes and unpublishes models from the status pages.

A page first shows the effects of a change and asks for confirmation. The forms
work without scripts. A form carries a token of this process, and must come from
a page of this server (see `origin`). So no page of another site can make a
browser send one.
"""

from collections.abc import Callable, Mapping
import hmac
import secrets
from typing import Any, Protocol

from starlette import requests

from saxml_ext.admin import controller as controller_lib
from saxml_ext.admin import validation
from saxml_ext.admin.modelet import members as members_lib
from saxml_ext.admin.status import status_page
from saxml_ext.common import errors
from saxml_ext.common.pages import page_kit
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import overrides
from saxml_ext.protobuf import admin_pb2

_Form = Mapping[str, str]  # The texts of the fields of a form.
# A form never needs more.
MAX_BYTES = validation.MAX_MODEL_BYTES


class Permit(Protocol):
  """Decides if the sender of a request may change the cell."""

  def __call__(
    self, request: requests.Request, what: str, model_acl: str
  ) -> None:
    """Raises PermissionDenied if the sender of a request may not change it.

    Args:
      request: The request of a browser.
      what: The requested operation, which begins the message.
      model_acl: The admin list of the request's model; '' for none.
    """


class Changes:
  """The forms of one cell, and their actions."""

  def __init__(
    self,
    cell: str,
    controller: Callable[[], controller_lib.Controller],
    permit: Permit,
  ):
    """Does nothing yet.

    Args:
      cell: The cell, "/sax/<cell>".
      controller: A function that returns the cell's controller. It raises
        Unavailable if this admin server does not lead.
      permit: The check of permissions.
    """
    self._cell = cell
    self._controller = controller
    self._permit = permit
    self._token = secrets.token_urlsafe(24)

  def allowed(self, request: requests.Request) -> bool:
    """Returns True if the sender of a request may make changes."""
    try:
      self._permit(request, 'Publish', '')
    except errors.PermissionDenied:
      return False
    return True

  def publish_form(
    self, request: requests.Request, given: _Form, error: str = ''
  ) -> str:
    """Returns the page with the form to publish a model.

    Args:
      request: The request, whose sender must have permission.
      given: The values that the user has filled in before.
      error: The problem with these values.

    Raises:
      PermissionDenied: The sender may not publish models.
    """
    self._permit(request, f'Publish to {self._cell}', '')
    servers = self._controller().members.all()
    return self._page(
      'publish.html',
      'Publish a model',
      error=error,
      given=given,
      cell=self._cell,
      token=self._token,
      paths=sorted(set().union(*(s.paths for s in servers))),
    )

  def confirm_publish(self, request: requests.Request, given: _Form) -> str:
    """Returns the page that asks for confirmation before a publish."""
    self._check(request, given, f'Publish to {self._cell}', '')
    model = self._model(given)
    rows = [
      ('Model id', model.model_id),
      ('Model path', model.model_path),
      ('Checkpoint', model.checkpoint_path),
      ('Replicas', str(model.requested_num_replicas)),
      *((f'Override {k}', v) for k, v in sorted(model.overrides.items())),
    ]
    return self._confirm(
      given,
      'Publish this model?',
      action='/publish',
      button='Publish it',
      settings=rows,
      warnings=self._warnings(model),
      danger=False,
    )

  def _model(self, given: _Form) -> admin_pb2.Model:
    """Returns the checked model in a submitted form."""
    model = _model(given)
    validation.check_model(model, self._cell)
    overrides.check(model.model_path, model.overrides)
    return model

  def _warnings(self, model: admin_pb2.Model) -> list[str]:
    """Returns likely mistakes. They do not prevent the publication."""
    path = model.model_path
    servable = self._controller().members.servable_paths()
    unknown = (
      members_lib.explain_unknown(path, servable)
      if servable
      else overrides.find_path_mistake(path)
    )
    warnings = overrides.find_mistakes(path, model.overrides)
    return [text for text in (unknown, *warnings) if text]

  async def publish(self, request: requests.Request, given: _Form) -> str:
    """Publishes a model after its confirmation, and returns its id."""
    self._check(request, given, f'Publish to {self._cell}', '')
    model = self._model(given)
    await self._controller().publish(model)
    return model.model_id

  def confirm_unpublish(self, request: requests.Request, model_id: str) -> str:
    """Returns the page that asks for confirmation before an unpublish."""
    controller = self._controller()
    model = controller.get(model_id).model
    self._permit(request, f'Unpublish of {model_id}', model.admin_acl)
    holders = controller.holders(model_id)
    servers = ', '.join(s.address for s in holders) or 'no server'
    return self._confirm(
      {'model': model_id},
      'Unpublish this model?',
      action='/unpublish',
      button='Unpublish it',
      warnings=(),
      settings=[
        ('Model id', model_id),
        ('Model path', model.model_path),
        ('Checkpoint', model.checkpoint_path),
        ('Loaded on', servers),
      ],
      danger=True,
    )

  async def unpublish(self, request: requests.Request, given: _Form) -> None:
    """Unpublishes a model after its confirmation."""
    model_id = given.get('model', '')
    controller = self._controller()
    acl = controller.get(model_id).model.admin_acl
    self._check(request, given, f'Unpublish of {model_id}', acl)
    await controller.unpublish(model_id)

  def _check(
    self, request: requests.Request, given: _Form, what: str, model_acl: str
  ) -> None:
    self._permit(request, what, model_acl)
    token = given.get('token', '').encode()
    if not hmac.compare_digest(token, self._token.encode()):
      raise errors.PermissionDenied(
        'this form is older than the running admin server. Load the page again'
      )

  def _confirm(self, given: _Form, heading: str, **more: Any) -> str:
    """Returns a page that asks for confirmation of a form."""
    fields = {**given, 'confirmed': 'yes', 'token': self._token}
    return self._page('confirm.html', heading, fields=fields, **more)

  def _page(self, template: str, heading: str, **data: Any) -> str:
    return page_kit.render(
      status_page.TEMPLATES / template,
      title=self._cell,
      heading=heading,
      live=False,
      changes=False,
      **data,
    )


def _model(given: _Form) -> admin_pb2.Model:
  """Returns the model in a submitted form; raises InvalidArgument."""
  replicas = given.get('replicas', '').strip()
  if not (replicas.isascii() and replicas.isdecimal() and len(replicas) < 10):
    raise errors.InvalidArgument(
      f'replicas is {replicas!r}. Enter a number from 0 to 999999999'
    )
  overrides = {}
  for line in given.get('overrides', '').splitlines():
    key, separator, value = line.strip().partition('=')
    if key and separator:
      overrides[key] = value
    elif line.strip():
      raise errors.InvalidArgument(
        f'override {line.strip()!r} does not have the form KEY=VALUE'
      )
  return admin_pb2.Model(
    model_id=given.get('model', '').strip(),
    model_path=given.get('path', '').strip(),
    checkpoint_path=given.get('checkpoint', '').strip(),
    requested_num_replicas=int(replicas),
    overrides=overrides,
  )
