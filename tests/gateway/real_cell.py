"""Runs a whole cell in this process: admin server, model server, real engine.

Its random model reads and writes text, with beam search by default. The
checkpoint contains a chat template that leaves a trace if it is executed.
"""

import asyncio
import dataclasses
import json
import os
import pathlib
import shutil
import threading
from typing import Any

from saxml_ext.admin import cell_admin as admin_server
from saxml_ext.client import sax
from saxml_ext.common import cell as cell_files
from saxml_ext.common import net
from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud
from saxml_ext.params import registry
from saxml_ext.protobuf import admin_pb2
from saxml_ext.server import membership
from saxml_ext.server import model_server
from saxml_ext.server.loading import loader
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


class RealCell:
  """A cell that serves until `stop`.

  Attributes:
    root: The root directory of the cell.
    canary: The path of a file that exists if the checkpoint's template was
      executed.
  """

  def __init__(self, directory: str):
    os.environ[net.LOOPBACK_VARIABLE] = '1'
    self.root = os.path.join(directory, 'root')
    self.canary = os.path.join(directory, 'executed')
    self._checkpoint = os.path.join(directory, 'checkpoint')
    shape = dataclasses.replace(small_model.SHAPE, vocab_size=_VOCAB_SIZE)
    small_model.write(self._checkpoint, shape=shape)
    self._add_template()
    config = admin_pb2.Config(fs_root=directory, admin_acl='acl/all')
    cell_files.write_config(self.root, CELL, config)
    sax.SetRoot(self.root)
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
    self._thread.start()
    self._run(self._start())
    sax.Publish(MODEL, _PARAMS, self._checkpoint, 1)
    sax.WaitForReady(MODEL, 1)

  def _add_template(self) -> None:
    """Writes a hostile chat template into the checkpoint."""
    touch = f"open('{self.canary}', 'w')"
    template = (
      "{{ ''.__class__.__mro__[1].__subclasses__() }}"
      f'{{{{ lipsum.__globals__.__builtins__.{touch} }}}}'
    )
    directory = pathlib.Path(self._checkpoint)
    (directory / 'chat_template.jinja').write_text(template)
    (directory / 'tokenizer_config.json').write_text(
      json.dumps({'chat_template': template})
    )

  def _run(self, coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(600)

  async def _start(self) -> None:
    self._admin = admin_server.AdminServer(self.root, CELL, 0)
    await self._admin.start()
    await self._admin.leading()
    self._server = model_server.ModelServer(loader.load, port=0)
    await self._server.start()
    join = admin_pb2.JoinRequest(
      address=net.advertised_address(self._server.port),
      model_server=admin_pb2.ModelServer(servable_model_paths=[_PARAMS]),
    )
    member = membership.Membership(self.root, CELL, join)
    self._joining = asyncio.create_task(member.run())

  async def _stop(self) -> None:
    self._joining.cancel()
    await self._server.stop(grace=0)
    await self._admin.stop()

  def stop(self) -> None:
    """Stops all servers."""
    self._run(self._stop())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()
    shutil.rmtree(self._checkpoint)
