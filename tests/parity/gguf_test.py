"""Tests that GGUF files of families hold what Hugging Face files hold.

transformers makes a random model of each family, and the file is written as
llama.cpp's convert_hf_to_gguf writes it. Other tests compare the results of
Hugging Face files with those of transformers.
"""

import dataclasses
import os
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.convert import model_source
from converters.convert import sources
from converters.testing import gguf_files
from saxml_ext.engine import architecture
from saxml_ext.families import all as families
from tests.parity import family_models

_WIDE = {'_attention__key_length': 16, '_attention__value_length': 16}
_FACTORS = {
  'rope_factors_short.weight': np.array([1.0, 2.5], np.float32),
  'rope_factors_long.weight': np.array([3.0, 4.0], np.float32),
}
# The settings that the converter writes for the families of `OWN_SIZES`.
_SETTINGS: dict[str, dict[str, Any]] = {
  'qwen3': _WIDE,
  'phi3': {
    '_rope__dimension_count': 4,
    '_rope__scaling__original_context_length': 64,
    '_rope__scaling__attn_factor': 1.2,
    '_attention__sliding_window': 64,
  },
  'granite': {
    '_rope__dimension_count': 8,
    '_embedding_scale': 3.0,
    '_residual_scale': 0.22,
    '_attention__scale': 0.5,
    '_logit_scale': 0.75,
  },
  'smollm3': {'_rope__dimension_count': 8},
  'olmo2': {},
  'gemma': {**_WIDE, '_rope__freq_base': None, '_vocab_size': None},
  'mistral': {**_WIDE, '_rope__dimension_count': 16},
}


class GGUFTest(parameterized.TestCase):
  @parameterized.parameters(*_SETTINGS)
  def test_variables_match_the_hugging_face_model(self, name):
    sizes = dataclasses.replace(
      family_models.OWN_SIZES[name],
      vocab_size=gguf_files.VOCAB,
      tied_embeddings=name == 'gemma',
      bos_id=1,
      eos_id=2,
      stop_ids=(2, 0),
    )
    if name == 'smollm3':
      sizes = dataclasses.replace(
        sizes, num_layers=4, details=architecture.Details(unrotated=(3,))
      )
    directory = self.create_tempdir().full_path
    model = family_models.save(directory, families.FAMILIES[name], sizes)
    tensors = {k: v.numpy() for k, v in model.state_dict().items()}
    if sizes.tied_embeddings:
      del tensors['lm_head.weight']
    # The converter writes Mistral as Llama.
    family = 'llama' if name == 'mistral' else name
    changes = {
      '_context_length': sizes.max_positions,
      '_embedding_length': sizes.model_dim,
      '_block_count': sizes.num_layers,
      '_feed_forward_length': sizes.hidden_dim,
      '_attention__head_count': sizes.num_heads,
      '_attention__head_count_kv': sizes.kv_heads,
      '_rope__freq_base': 10000.0,
      **_SETTINGS[name],
    }
    path = gguf_files.write(
      os.path.join(directory, 'model.gguf'),
      tensors | (_FACTORS if name == 'phi3' else {}),
      gguf_files.metadata(family, **changes),
      family,
      head_dim=sizes.head_dim,
    )
    opened = sources.open_checkpoint(path)
    self.assertEqual(opened.family.name, family)
    self.assertEqual(
      opened.family.architecture, families.FAMILIES[name].architecture
    )
    source = model_source.ModelSource(opened)
    expected = model_source.ModelSource(directory)
    self.assertEqual(source.config, expected.config)
    self.assertEqual(
      [v.name for v in source.variables], [v.name for v in expected.variables]
    )
    for ours, theirs in zip(source.variables, expected.variables):
      np.testing.assert_allclose(
        source.build(ours, np.dtype(np.float32)),
        expected.build(theirs, np.dtype(np.float32)),
        # Norms of Gemma lose bits when 1 is added.
        atol=1.2e-7 if name == 'gemma' else 0,
        rtol=0,
        err_msg=ours.name,
      )


if __name__ == '__main__':
  absltest.main()
