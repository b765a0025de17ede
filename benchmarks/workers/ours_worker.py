"""Runs this repository's engine in a worker."""

from collections.abc import Sequence
import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import workload
from benchmarks.workers import exact
from benchmarks.workers import ours_programs
from benchmarks.workers import service
from benchmarks.workers import streamed
from benchmarks.workers import trials
from saxml_ext.common import memory
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import model
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib

# The XLA option that writes the compiled programs to files.
_DUMP = '--xla_dump_to'


class Ours:
  """The engine, driven by the policy of the server's scheduler."""

  def convert(self, job: service.Job) -> None:
    """Compiles the programs, unless they are cached."""
    self._job = job
    self._stored = streamed.Stored(job.model)
    self._config = self._stored.config
    self._engine = engine_config(job)
    self.kv = self._engine.kv_dtype
    self._dtype, self._quantization = job.dtype, None
    if job.dtype in ('int8', 'int4'):
      # This is the format of values that are not integers, as in the published
      # params.
      self._dtype, self._quantization = 'bfloat16', job.dtype
    self._ready, self._how = None, 'compiled in this process'
    if _DUMP in os.environ.get('XLA_FLAGS', ''):
      return  # The dump is written while compiling.
    programs, seconds = ours_programs.kept(
      job.cache, self._config, self._engine, self._dtype, self._quantization
    )
    self._ready = programs.load
    self._how = f'compiled in another process ({seconds:.0f} s)'

  def load(self, job: service.Job) -> None:
    del job  # convert() got the same job.
    reader = weights_lib.PaxReader(
      self._stored.variables, self._config, self._dtype, self._quantization
    )
    # The head comes first. It is large in float32 and small in int8, and now
    # most of the memory is free.
    head = reader.leaf('head')
    fields = (
      'embedding',
      'final_norm.scale',
      'final_norm.bias',
      'head_bias',
    )
    leaves = {field: reader.leaf(field) for field in fields} | {'head': head}
    layers = tuple(map(reader.layer, range(self._config.num_layers)))
    self._weights = weights_lib.assemble(leaves.__getitem__, layers)
    memory.collect()

  def prepare(self) -> str:
    self._runner = runner_lib.Runner(
      self._weights, self._config, self._engine, ready=self._ready
    )
    self._runner.warm_up()
    memory.collect()  # Frees the memory of compilers and of program files.
    # The first call of each program allocates memory, so it is not measured.
    first = self._job.requests[: self._engine.num_slots]
    self.generate(trials.shortened(first, self._job.trial_new_tokens))
    return f'{self._engine.num_slots} slots, {self._how}'

  def generate(self, requests: Sequence[workload.Request]) -> list[list[int]]:
    order = sorted(range(len(requests)), key=lambda i: -len(requests[i].tokens))
    answers: list[list[int]] = [[] for _ in requests]
    holder: dict[int, int] = {}
    while order or holder:
      free = [s for s in range(self._runner.num_slots) if s not in holder]
      batch = dict(zip(free, order))
      del order[: len(batch)]
      holder |= batch
      self._runner.prefill_and_insert(
        {s: _request(requests[i]) for s, i in batch.items()}
      )
      for slot, result in self._runner.step().items():
        tokens = result.hypotheses[0].tokens.tolist()
        answers[holder.pop(slot)] = self._without_end(tokens)
    return answers

  def n_best(self) -> service.NBest:
    """Returns all beams of the first request."""
    self._runner.prefill_and_insert({0: _request(self._job.requests[0])})
    results: dict[int, request_lib.Result] = {}
    while not results:
      results = self._runner.step()
    answers = results[0].hypotheses
    return {
      'tokens': [self._without_end(h.tokens.tolist()) for h in answers],
      'scores': [h.score for h in answers],
    }

  def _without_end(self, tokens: list[int]) -> list[int]:
    return tokens[:-1] if tokens[-1:] == [self._job.eos] else tokens

  def top1(
    self, sequences: Sequence[Sequence[int]], starts: Sequence[int]
  ) -> list[list[int]]:
    """Returns the most likely token at each position from `starts` on."""
    length = max(map(len, sequences))

    @jax.jit
    def likeliest(weights, tokens):
      x, _ = model.prefill(weights, self._config, tokens, 'float32')
      return model.logits(weights, self._config, x[0, :-1]).argmax(-1)

    result = []
    for sequence, start in zip(sequences, starts):
      tokens = np.zeros((1, length), np.int32)
      tokens[0, : len(sequence)] = sequence
      best = likeliest(self._weights, jnp.asarray(tokens))
      result.append(best[start - 1 : len(sequence) - 1].tolist())
    return result

  def exact_top1(
    self, sequences: Sequence[Sequence[int]], starts: Sequence[int]
  ) -> list[list[int]]:
    """Returns `top1` in float32, for any number format of this worker."""
    return exact.top1(streamed.Stored(self._job.model), sequences, starts)

  def trace(self, directory: str, count: int) -> None:
    """Profiles a run of the first `count` requests; writes to a directory."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # It would slow down the host.
    with jax.profiler.trace(directory, profiler_options=options):
      self.generate(self._job.requests[:count])


def engine_config(job: service.Job) -> config_lib.EngineConfig:
  """Returns engine settings with exact buckets if all lengths are equal.

  Several numbers of requests then have exact widths too.

  Keys and values are float32. With bfloat16, only half as many bytes are read,
  but XLA:CPU loses the saved time when it writes them.
  """
  lengths = {len(r.tokens) for r in job.requests}
  slots = min(job.slots, len(job.requests))
  max_new = max(r.max_new for r in job.requests)
  one_length = len(lengths) == 1
  widths: tuple[int, ...] = ()
  if one_length and len(job.counts) > 1:
    widths = tuple(sorted({min(count, slots) for count in job.counts}))
  return config_lib.EngineConfig(
    eos_id=job.eos,
    num_slots=slots,
    decode_widths=widths,
    max_prompt=max(lengths),
    prompt_buckets=tuple(lengths) if one_length else (),
    max_new_tokens=max_new,
    min_new_tokens=0,
    num_beams=job.beams,
    search='beam' if job.beams > 1 else 'sample',
    max_top_k=1,
    suffix_block=config_lib.suffix_block(max_new),
  )


def _request(request: workload.Request) -> request_lib.Request:
  return request_lib.Request(
    np.asarray(request.tokens, np.int32), request.max_new, request.min_new
  )


if __name__ == '__main__':
  service.serve(Ours())
