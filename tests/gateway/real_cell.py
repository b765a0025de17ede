"""A whole cell in this process: admin server, model servers, real engines.

Two random models, one published with beam search and one with sampling, read
and write text. Their checkpoints bring a chat template that leaves a trace
where it is executed.
"""

import asyncio
import dataclasses
import json
import os
import pathlib
import shutil
import threading
from typing import Any

from saxml_ext.admin import server as admin_server
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
BEAMS, SAMPLES = CELL + '/beams', CELL + '/samples'
MAX_PROMPT, MAX_NEW_TOKENS = 40, 24
_PATH = 'tests.gateway.real_cell.'
_VOCAB_SIZE = 1024


@registry.register(_PATH + 'Beams')
class Beams(gptj.TinyFP32):
  """Few and small programs, so that they compile within seconds."""

  VOCABULARY_PATH = lm_cloud.SMALL_VOCABULARY
  BATCH_SIZE = 2
  MAX_LIVE_BATCHES = 2
  INPUT_SEQ_LEN = MAX_PROMPT
  BUCKET_KEYS = [MAX_PROMPT]
  MIN_DECODE_STEPS = 0
  MAX_DECODE_STEPS = MAX_NEW_TOKENS
  BEAM_SIZE = 4
  EXTRA_INPUTS = {'per_example_max_decode_steps': MAX_NEW_TOKENS}


@registry.register(_PATH + 'Samples')
class Samples(Beams):
  """The same model, sampled from."""

  USE_BEAM_SEARCH = False
  NUM_SAMPLES = 2
  TOP_K = 40
  TEMPERATURE = 1.0
  EXTRA_INPUTS = {
    **gptj.TinySampleFP32.EXTRA_INPUTS,
    'per_example_max_decode_steps': MAX_NEW_TOKENS,
  }


class RealCell:
  """Serves until `stop`.

  Attributes:
    root: of the cell.
    canary: a file that exists once the checkpoint's template was executed.
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
    self._servers: list[model_server.ModelServer] = []
    self._joining: list[asyncio.Task[None]] = []
    self._run(self._start())
    for model_id, name in ((BEAMS, 'Beams'), (SAMPLES, 'Samples')):
      sax.Publish(model_id, _PATH + name, self._checkpoint, 1)
    for model_id in (BEAMS, SAMPLES):
      sax.WaitForReady(model_id, 1)

  def _add_template(self) -> None:
    """What a hostile checkpoint has where Hugging Face's have templates."""
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
    for name in ('Beams', 'Samples'):
      server = model_server.ModelServer(loader.load, port=0)
      await server.start()
      join = admin_pb2.JoinRequest(
        address=net.advertised_address(server.port),
        model_server=admin_pb2.ModelServer(servable_model_paths=[_PATH + name]),
      )
      member = membership.Membership(self.root, CELL, join)
      self._servers.append(server)
      self._joining.append(asyncio.create_task(member.run()))

  async def _stop(self) -> None:
    for task in self._joining:
      task.cancel()
    for server in self._servers:
      await server.stop(grace=0)
    await self._admin.stop()

  def stop(self) -> None:
    """Ends everything."""
    self._run(self._stop())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()
    shutil.rmtree(self._checkpoint)
