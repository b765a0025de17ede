"""LmCloudSpmd, paxml's example of a language model; it has no tokenizer."""

from saxml_ext.engine import architecture
from saxml_ext.families import family

FAMILY = family.Family(
  name='lm_cloud',
  title='LmCloudSpmd',
  architecture=architecture.LM_CLOUD,
  ln_direct_scale=False,
)
