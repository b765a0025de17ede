"""Tests of the assignment rule."""

import dataclasses
import random

from absl.testing import absltest

from saxml_ext.admin.placement import assigner

LOADED = assigner.Rank.LOADED
LOADING = assigner.Rank.LOADING
FAILED = assigner.Rank.FAILED


def _model(name: str, path: str = 'p', replicas: int = 1) -> assigner.Model:
  return assigner.Model(name, path, replicas)


def _server(address: str, paths: str = 'p', **holds) -> assigner.Server:
  return assigner.Server(address, frozenset(paths), holds)


def _plan(models, servers) -> tuple[list[str], list[str]]:
  plan = assigner.assign(models, servers)
  return (
    [f'{s.address}-{s.model_id}' for s in plan.unload],
    [f'{s.address}-{s.model_id}' for s in plan.load],
  )


class AssignerTest(absltest.TestCase):
  def test_idle_server_with_the_path_is_taken(self):
    self.assertEqual(
      _plan([_model('a')], [_server('s1', 'q'), _server('s2')]),
      ([], ['s2-a']),
    )

  def test_path_must_match_exactly(self):
    server = assigner.Server('s1', frozenset(['pp']), {})
    self.assertEqual(_plan([_model('a')], [server]), ([], []))

  def test_one_model_per_server(self):
    self.assertEqual(
      _plan([_model('a'), _model('b')], [_server('s1')]), ([], ['s1-a'])
    )

  def test_server_that_failed_to_load_is_busy(self):
    self.assertEqual(
      _plan([_model('a'), _model('b')], [_server('s1', a=FAILED)]), ([], [])
    )

  def test_current_holders_keep_their_model(self):
    self.assertEqual(
      _plan([_model('b'), _model('a')], [_server('s1', a=LOADED)]), ([], [])
    )

  def test_missing_replicas_are_added(self):
    servers = [_server('s1', a=LOADED), _server('s2'), _server('s3')]
    self.assertEqual(_plan([_model('a', replicas=2)], servers), ([], ['s2-a']))

  def test_surplus_is_taken_from_the_least_useful(self):
    servers = [
      _server('s1', a=FAILED),
      _server('s2', a=LOADING),
      _server('s3', a=LOADED),
      _server('s4', a=LOADED),
    ]
    self.assertEqual(
      _plan([_model('a', replicas=1)], servers),
      (['s4-a', 's2-a', 's1-a'], []),
    )

  def test_zero_replicas_unloads_all(self):
    self.assertEqual(
      _plan([_model('a', replicas=0)], [_server('s1', a=LOADED)]),
      (['s1-a'], []),
    )

  def test_unpublished_model_makes_room_for_another(self):
    self.assertEqual(
      _plan([_model('b')], [_server('s1', gone=LOADED)]),
      (['s1-gone'], ['s1-b']),
    )

  def test_fewer_servers_than_requested(self):
    self.assertEqual(
      _plan([_model('a', replicas=5)], [_server('s2'), _server('s1')]),
      ([], ['s1-a', 's2-a']),
    )

  def test_random_cells_reach_a_fixed_point(self):
    rng = random.Random(1)
    for _ in range(50):
      models = [
        _model(f'm{i}', rng.choice('pq'), rng.randrange(4))
        for i in range(rng.randrange(6))
      ]
      names = [f'm{i}' for i in range(8)]
      servers = [
        _server(
          f's{i}',
          rng.choice(['p', 'q', 'pq']),
          **{
            rng.choice(names): rng.choice(list(assigner.Rank))
            for _ in range(rng.randrange(2))
          },
        )
        for i in range(rng.randrange(8))
      ]
      after = {s.address: dict(s.holds) for s in servers}
      plan = assigner.assign(models, servers)
      for step in plan.unload:
        del after[step.address][step.model_id]
      for step in plan.load:
        after[step.address][step.model_id] = LOADED
      self.assertTrue(all(len(holds) <= 1 for holds in after.values()))
      for model in models:
        count = sum(model.model_id in holds for holds in after.values())
        self.assertLessEqual(count, model.replicas)
      again = assigner.assign(
        models,
        [
          assigner.Server(s.address, s.model_paths, after[s.address])
          for s in servers
        ],
      )
      self.assertEqual(again, assigner.Plan((), ()))

  def test_memory_is_shared_where_needs_are_known(self):
    models = [
      assigner.Model(name, 'p', 1, need)
      for name, need in (('a', 5), ('b', 6), ('c', 4), ('d', None))
    ]
    server = assigner.Server('s1', frozenset('p'), {}, memory=10)
    plan = assigner.assign(models, [server])
    self.assertEqual([s.model_id for s in plan.load], ['a', 'c'])
    held = assigner.Server('s1', frozenset('p'), {'d': LOADED}, memory=10)
    self.assertEqual(assigner.assign(models, [held]).load, ())

  def test_server_with_most_memory_comes_first(self):
    small, large = (
      assigner.Server(address, frozenset('p'), {}, memory=memory)
      for address, memory in (('s1', 10), ('s2', 20))
    )
    model = assigner.Model('a', 'p', 1, need=5)
    self.assertEqual(_plan([model], [small, large])[1], ['s2-a'])
    held = assigner.Model('b', 'p', 2, need=5)
    shared = [
      dataclasses.replace(server, holds={'b': LOADED})
      for server in (small, large)
    ]
    self.assertEqual(_plan([held, model], shared)[1], ['s2-a'])

  def test_memory_is_used_to_the_last_byte(self):
    def loads(*needs: int, held: int = 2) -> list[str]:
      """Returns the loads for a server of 10 bytes with the first models."""
      models = [
        assigner.Model(f'm{i}', 'p', 1, need) for i, need in enumerate(needs)
      ]
      server = assigner.Server(
        's1', frozenset('p'), {f'm{i}': LOADED for i in range(held)}, memory=10
      )
      return [s.model_id for s in assigner.assign(models, [server]).load]

    self.assertEqual(loads(4, 5, 1), ['m2'])
    self.assertEqual(loads(4, 5, 2), [])
    self.assertEqual(loads(10, held=0), ['m0'])
    self.assertEqual(loads(11, held=0), [])
    self.assertEqual(loads(6, 4, held=0), ['m0', 'm1'])
    self.assertEqual(loads(6, 5, held=0), ['m0'])

  def test_full_server_takes_nothing_more(self):
    server = assigner.Server('s1', frozenset('p'), {}, memory=10)
    models = [assigner.Model('a', 'p', 1, 10), assigner.Model('b', 'p', 1, 0)]
    self.assertEqual(_plan(models, [server])[1], ['s1-a'])
    full = dataclasses.replace(server, holds={'a': LOADED})
    self.assertEqual(_plan(models, [full])[1], [])

  def test_unloading_server_comes_last(self):
    busy = dataclasses.replace(_server('s1'), leaving=1)
    self.assertEqual(_plan([_model('a')], [busy, _server('s2')])[1], ['s2-a'])
    self.assertEqual(_plan([_model('a')], [busy])[1], ['s1-a'])

  def test_failed_model_moves_to_server_with_fewer_failures(self):
    bad = assigner.Server('s1', frozenset('p'), {'a': FAILED}, {'a': 1})
    model = _model('a')
    self.assertEqual(_plan([model], [bad, _server('s2')]), (['s1-a'], ['s2-a']))
    [retry] = assigner.assign([model], [bad]).retry
    self.assertEqual(retry, assigner.Step('s1', 'a'))
    waiting = assigner.Model('a', 'p', 1, may_retry=False)
    self.assertEqual(
      assigner.assign([waiting], [bad, _server('s2')]),
      assigner.Plan((), ()),
    )

  def test_free_server_without_failures_comes_first(self):
    failed = assigner.Server('s1', frozenset('p'), {}, {'a': 2})
    self.assertEqual(_plan([_model('a')], [failed, _server('s2')])[1], ['s2-a'])


if __name__ == '__main__':
  absltest.main()
