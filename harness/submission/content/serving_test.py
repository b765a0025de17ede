from absl.testing import absltest
from absl.testing import parameterized

from harness.results import entry as entry_lib
from harness.submission.content import serving

_TINY = 'saxml_ext.params.gptj.TinyFP32'
_SAMPLING = 'saxml_ext.params.gptj.TinySampleFP32'


def _entry(kind='cell', notes=None, **system):
  return entry_lib.Entry(
    benchmark='gptj',
    model='gptj-99',
    scenario='Offline',
    round='v4.0',
    system=kind,
    parameters={'system': system},
    command=(),
    began='',
    ended='',
    notes=notes or {},
  )


class ServingTest(parameterized.TestCase):
  @parameterized.parameters(
    (_entry(params=_TINY), 4),
    (_entry(params=_TINY, overrides={'BEAM_SIZE': '2'}), 2),
    (_entry(params=_TINY, overrides={'USE_BEAM_SEARCH': 'false'}), 1),
    (_entry(params=_SAMPLING), 1),
    (_entry(params='some.other.Params'), None),
    (_entry(model_id='/sax/test/gptj'), None),
    (_entry(notes={'served': {'params': _TINY}}), 4),
    (_entry('reference', beam_size=None), 4),
    (_entry('reference', beam_size='1'), 1),
  )
  def test_beams(self, entry, expected):
    self.assertEqual(serving.beams(entry), expected)

  def test_prefix_cache(self):
    name = 'PRECOMPUTE_KV_CACHE_PREFIX'
    self.assertIsNone(serving.prefix_cache(_entry(params=_TINY)))
    overrides = {name: '"Below is"'}
    cached = _entry(params=_TINY, overrides=overrides)
    self.assertEqual(serving.prefix_cache(cached), 'Below is')
    off = _entry(params=_TINY, overrides={name: 'null'})
    self.assertIsNone(serving.prefix_cache(off))


if __name__ == '__main__':
  absltest.main()
