"""Runs a whole cell in this process: admin server, model server, real engine."""

import asyncio
from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
import threading
from typing import Any, NamedTuple

from saxml_ext.admin import cell_admin as admin_server
from saxml_ext.client import sax
from saxml_ext.common import cell as cell_files
from saxml_ext.common import net
from saxml_ext.common.telemetry import web
from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud
from saxml_ext.params import registry
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import membership
from saxml_ext.server import model_server
from saxml_ext.server.loading import loader
from saxml_ext.server.monitoring import monitoring_app
from saxml_ext.server.testing import small_model

CELL = '/sax/test'
MODEL = CELL + '/m'
MAX_PROMPT, MAX_NEW_TOKENS = 40, 24
_PARAMS = 'tests.gateway.real_cell.Params'
_VOCAB_SIZE = 1024


@registry.register(_PARAMS)
class Params(gptj.TinyFP32):
  """Serving params with few small programs, which compile within seconds."""

  VOCABULARY_PATH = lm_cloud.SMALL_VOCABULARY
  BATCH_SIZE = 1
  MAX_LIVE_BATCHES = 2
  INPUT_SEQ_LEN = MAX_PROMPT
  BUCKET_KEYS = [MAX_PROMPT]
  MIN_DECODE_STEPS = 0
  MAX_DECODE_STEPS = MAX_NEW_TOKENS
  MIXED_SEARCH = True
  BEAM_SIZE = 4
  NUM_SAMPLES = 2
  TOP_K = 40
  TEMPERATURE = 1.0
  MAX_LOGPROBS = 2
  EXTRA_INPUTS = {
    **gptj.TinySampleFP32.EXTRA_INPUTS,
    'per_example_max_decode_steps': MAX_NEW_TOKENS,
  }


class Model(NamedTuple):
  """A model to publish.

  Attributes:
    params: The name of its serving params.
    checkpoint: The directory of its PAX checkpoint.
    overrides: The values of attributes of the params, as JSON.
  """

  params: str
  checkpoint: str
  overrides: Mapping[str, str] = {}


def random_model(checkpoint: str, canary: str) -> Model:
  """Writes a random model that reads and writes text, with beams by default.

  Args:
    checkpoint: The directory to write to.
    canary: The path of a file that the checkpoint's chat template makes if it
      is executed.
  """
  shape = dataclasses.replace(small_model.SHAPE, vocab_size=_VOCAB_SIZE)
  small_model.write(checkpoint, shape=shape)
  touch = f"open('{canary}', 'w')"
  template = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    f'{{{{ lipsum.__globals__.__builtins__.{touch} }}}}'
  )
  directory = pathlib.Path(checkpoint)
  (directory / 'chat_template.jinja').write_text(template)
  (directory / 'tokenizer_config.json').write_text(
    json.dumps({'chat_template': template})
  )
  return Model(_PARAMS, checkpoint)


class RealCell:
  """A cell that serves a model as MODEL until `stop`.

  Attributes:
    root: The root directory of the cell.
    admin_port: The loopback port of the admin server's pages and metrics.
    server_port: The loopback port of the model server's metrics.
  """

  def __init__(self, directory: str, model: Model):
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    self.root = os.path.join(directory, 'root')
    config = admin_pb2.Config(fs_root=directory, admin_acl='acl/all')
    cell_files.write_config(self.root, CELL, config)
    sax.SetRoot(self.root)
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
    self._thread.start()
    self._run(self._start(model.params))
    sax.Publish(MODEL, model.params, model.checkpoint, 1, model.overrides)
    sax.WaitForReady(MODEL, 1)

  def _run(self, coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(600)

  async def _start(self, params: str) -> None:
    self._admin = admin_server.AdminServer(self.root, CELL, 0, http_port=0)
    await self._admin.start()
    await self._admin.leading()
    self.admin_port = self._admin.http_port
    self._server = model_server.ModelServer(loader.load, port=0)
    await self._server.start()
    pages = monitoring_app.Pages(self._server.models, lambda: True, (), '')
    self._web = web.WebServer(pages.app())
    await self._web.start(0)
    self.server_port = self._web.port
    join = admin_pb2.JoinRequest(
      address=net.advertised_address(self._server.port),
      model_server=admin_pb2.ModelServer(servable_model_paths=[params]),
    )
    member = membership.Membership(self.root, CELL, join)
    self._joining = asyncio.create_task(member.run())

  async def _stop(self) -> None:
    self._joining.cancel()
    await self._web.stop()
    await self._server.stop(grace=0)
    await self._admin.stop()

  def stop(self) -> None:
    """Stops all servers."""
    self._run(self._stop())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()
