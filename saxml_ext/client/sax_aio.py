"""The asyncio client of a Sax cell: the names of sax.py, as coroutines.

    from saxml_ext.client import sax_aio

    model = sax_aio.Model('/sax/test/gptj').LM()
    results = await asyncio.gather(*map(model.Generate, prompts))
    async for items in model.GenerateStream('Hello'):
      ...

Cancelling a task cancels the call that it waits for, also on the server. No
call needs a thread. A connection belongs to the event loop that created it.
"""

# This import must come before any module that imports gRPC.
from saxml_ext.common import grpc_log  # noqa: F401 Registers or sets up.

# isort: split

from saxml_ext.client import sax
from saxml_ext.client.models import custom
from saxml_ext.client.models import lm
from saxml_ext.client.models import media
from saxml_ext.client.transport import admin_calls
from saxml_ext.client.transport import asynchronous
from saxml_ext.client.transport import data_client

SaxError = sax.SaxError
Options = sax.Options
ModelOptions = sax.ModelOptions
AdminOptions = sax.AdminOptions
ModelDetail = sax.ModelDetail
Replica = sax.Replica
ModelServerTypeStat = sax.ModelServerTypeStat
SetRoot = sax.SetRoot
StartDebugPort = sax.StartDebugPort

LanguageModel = lm.LM
VisionModel = media.VM
AudioModel = media.AM
MultimodalModel = media.MM
CustomModel = custom.CM
ModelServer = custom.Modelet


class Model:
  """A published model."""

  def __init__(self, model_id: str, options: Options | None = None):
    """Creates the model without a check: an invalid id fails on first use."""
    self._client = data_client.DataClient(
      model_id, options or Options(), asynchronous.transport
    )

  def LM(self) -> LanguageModel:
    """Returns the model's language methods."""
    return LanguageModel(self._client)

  def VM(self) -> VisionModel:
    """Returns the model's vision methods."""
    return VisionModel(self._client)

  def AM(self) -> AudioModel:
    """Returns the model's audio methods."""
    return AudioModel(self._client)

  def MM(self) -> MultimodalModel:
    """Returns the model's multimodal methods."""
    return MultimodalModel(self._client)

  def CM(self) -> CustomModel:
    """Returns the model's custom methods."""
    return CustomModel(self._client)

  def Modelet(self) -> ModelServer:
    """Returns the methods that make a server save or export the model."""
    return ModelServer(self._client)


_calls = admin_calls.AdminCalls(asynchronous.transport)

Publish = _calls.Publish
Unpublish = _calls.Unpublish
Update = _calls.Update
UpdateReplicas = _calls.UpdateReplicas
UpdateCheckpoint = _calls.UpdateCheckpoint
List = _calls.List
ListDetail = _calls.ListDetail
ListAll = _calls.ListAll
ListAllDetails = _calls.ListAllDetails
Stats = _calls.Stats
WatchAddresses = _calls.WatchAddresses
WaitForReady = _calls.WaitForReady
GetACL = _calls.GetACL
SetACL = _calls.SetACL
