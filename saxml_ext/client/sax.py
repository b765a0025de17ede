"""The Python client of a Sax cell.

    from saxml_ext.client import sax

    sax.Publish('/sax/test/gptj', 'saxml_ext.params.gptj.TinyFP32', path, 1)
    sax.WaitForReady('/sax/test/gptj', 1)
    for text, score in sax.Model('/sax/test/gptj').LM().Generate('Hello'):
      print(score, text)

Cells are found under the root that `SetRoot` or the environment variable
SAX_ROOT names; SAX_CELL, if set, names the cell of models that are given by
their names alone. Functions and methods are thread-safe and raise `SaxError`;
sax_aio.py has the same ones for asyncio. Functions not documented here are in
transport/admin_calls.py, methods of models in models/.
"""

# Before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

import importlib
from typing import Any, TYPE_CHECKING

from saxml_ext.client.models import lm
from saxml_ext.client.models import modelet
from saxml_ext.client.transport import admin_calls
from saxml_ext.client.transport import admin_client
from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import debug_page
from saxml_ext.client.transport import model_detail
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors

if TYPE_CHECKING:
  from saxml_ext.client.models import am
  from saxml_ext.client.models import cm
  from saxml_ext.client.models import mm
  from saxml_ext.client.models import vm

SaxError = errors.SaxError
Options = options_lib.Options
ModelOptions = options_lib.ModelOptions
AdminOptions = options_lib.AdminOptions
ModelDetail = model_detail.ModelDetail
Replica = model_detail.Replica
ModelServerTypeStat = admin_calls.ModelServerTypeStat
SetRoot = admin_client.set_root

LanguageModel = lm.BlockingLM
ModelServer = modelet.BlockingModelet


class Model:
  """A published model.

  What few of its callers want is imported when they do.
  """

  def __init__(self, model_id: str, options: Options | None = None):
    """Never fails: what is wrong with the id shows at the first request."""
    self._client = data_client.DataClient(
      model_id, options or Options(), blocking.transport
    )

  def LM(self) -> LanguageModel:
    """The model's language methods."""
    return LanguageModel(self._client)

  def VM(self) -> 'vm.BlockingVM':
    """The model's vision methods."""
    from saxml_ext.client.models import vm

    return vm.BlockingVM(self._client)

  def AM(self) -> 'am.BlockingAM':
    """The model's audio methods."""
    from saxml_ext.client.models import am

    return am.BlockingAM(self._client)

  def MM(self) -> 'mm.BlockingMM':
    """The model's multimodal methods."""
    from saxml_ext.client.models import mm

    return mm.BlockingMM(self._client)

  def CM(self) -> 'cm.BlockingCM':
    """The model's custom methods."""
    from saxml_ext.client.models import cm

    return cm.BlockingCM(self._client)

  def Modelet(self) -> ModelServer:
    """Has one of the model's servers save or export it."""
    return ModelServer(self._client)


def __getattr__(name: str) -> Any:
  """The classes of the models that are imported late."""
  late = {
    'AudioModel': ('am', 'BlockingAM'),
    'CustomModel': ('cm', 'BlockingCM'),
    'MultimodalModel': ('mm', 'BlockingMM'),
    'VisionModel': ('vm', 'BlockingVM'),
  }
  if name not in late:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module, class_name = late[name]
  models = importlib.import_module(f'saxml_ext.client.models.{module}')
  return getattr(models, class_name)


_calls = admin_calls.AdminCalls(blocking.transport)

Publish = blocking.of(_calls.Publish)
Unpublish = blocking.of(_calls.Unpublish)
Update = blocking.of(_calls.Update)
UpdateReplicas = blocking.of(_calls.UpdateReplicas)
UpdateCheckpoint = blocking.of(_calls.UpdateCheckpoint)
List = blocking.of(_calls.List)
ListDetail = blocking.of(_calls.ListDetail)
ListAll = blocking.of(_calls.ListAll)
ListAllDetails = blocking.of(_calls.ListAllDetails)
Stats = blocking.of(_calls.Stats)
WatchAddresses = blocking.stream_of(_calls.WatchAddresses)
WaitForReady = blocking.of(_calls.WaitForReady)
GetACL = blocking.of(_calls.GetACL)
SetACL = blocking.of(_calls.SetACL)
StartDebugPort = debug_page.start
