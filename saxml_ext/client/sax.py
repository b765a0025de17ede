"""The Python client of a Sax cell.

    from saxml_ext.client import sax

    sax.Publish('/sax/test/gptj', 'saxml_ext.params.gptj.TinyFP32', path, 1)
    sax.WaitForReady('/sax/test/gptj', 1)
    for text, score in sax.Model('/sax/test/gptj').LM().Generate('Hello'):
      print(score, text)

Cells are found under the root that `SetRoot` or the environment variable
SAX_ROOT names. Functions and methods are thread-safe and raise `SaxError`;
sax_aio.py has the same ones for asyncio. Functions not documented here are in
admin_calls.py, methods of models in lm.py, vm.py, am.py, mm.py and cm.py.
"""

# Before any module that imports gRPC.
from saxml_ext.common import grpc_log  # pylint: disable=unused-import

from saxml_ext.client import admin_calls
from saxml_ext.client import admin_client
from saxml_ext.client import am
from saxml_ext.client import blocking
from saxml_ext.client import cm
from saxml_ext.client import data_client
from saxml_ext.client import debug_page
from saxml_ext.client import lm
from saxml_ext.client import mm
from saxml_ext.client import options as options_lib
from saxml_ext.client import vm
from saxml_ext.common import errors

SaxError = errors.SaxError
Options = options_lib.Options
ModelOptions = options_lib.ModelOptions
AdminOptions = options_lib.AdminOptions
ModelDetail = admin_calls.ModelDetail
ModelServerTypeStat = admin_calls.ModelServerTypeStat
SetRoot = admin_client.set_root
StartDebugPort = debug_page.start

LanguageModel = lm.BlockingLM
VisionModel = vm.BlockingVM
AudioModel = am.BlockingAM
MultimodalModel = mm.BlockingMM
CustomModel = cm.BlockingCM


class Model:
  """A published model."""

  def __init__(self, model_id: str, options: Options | None = None):
    """Never fails: what is wrong with the id shows at the first request."""
    self._client = data_client.DataClient(
        model_id, options or Options(), blocking.transport
    )

  def LM(self) -> LanguageModel:
    """The model's language methods."""
    return LanguageModel(self._client)

  def VM(self) -> VisionModel:
    """The model's vision methods."""
    return VisionModel(self._client)

  def AM(self) -> AudioModel:
    """The model's audio methods."""
    return AudioModel(self._client)

  def MM(self) -> MultimodalModel:
    """The model's multimodal methods."""
    return MultimodalModel(self._client)

  def CM(self) -> CustomModel:
    """The model's custom methods."""
    return CustomModel(self._client)


_calls = admin_calls.AdminCalls(blocking.transport)

Publish = blocking.of(_calls.Publish)
Unpublish = blocking.of(_calls.Unpublish)
Update = blocking.of(_calls.Update)
List = blocking.of(_calls.List)
ListDetail = blocking.of(_calls.ListDetail)
ListAll = blocking.of(_calls.ListAll)
Stats = blocking.of(_calls.Stats)
WaitForReady = blocking.of(_calls.WaitForReady)
GetACL = blocking.of(_calls.GetACL)
SetACL = blocking.of(_calls.SetACL)
