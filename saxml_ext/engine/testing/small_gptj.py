"""Creates a small random GPT-J of transformers, with weights in PAX names."""

import numpy as np
import torch
import transformers

# The only special token.
EOS = 0


def model(vocab_size: int = 96) -> transformers.GPTJForCausalLM:
  """Returns a model of two layers and four heads with peaked predictions."""
  torch.manual_seed(0)
  torch.set_num_threads(1)
  model = transformers.GPTJForCausalLM(
    transformers.GPTJConfig(
      vocab_size=vocab_size,
      n_positions=128,
      n_embd=64,
      n_layer=2,
      n_head=4,
      rotary_dim=8,
      bos_token_id=EOS,
      eos_token_id=EOS,
      tie_word_embeddings=False,
    )
  )
  with torch.no_grad():
    # The predictions are sharper than those of the initial weights, so that the
    # beams differ. They are biased toward the end, so that some answers end
    # early.
    model.lm_head.weight.mul_(30)
    model.lm_head.bias[EOS] = 1.5
  return model.eval()


def pax_variables(
  model: transformers.GPTJForCausalLM,
) -> dict[str, np.ndarray]:
  """Returns the model's weights under PAX names."""
  state = {k: v.numpy() for k, v in model.state_dict().items()}
  d, n = model.config.n_embd, model.config.n_head
  lm = 'params.lm'
  result = {
    f'{lm}.embedding_lookup.emb_var': state['transformer.wte.weight'],
    f'{lm}.final_ln.scale': state['transformer.ln_f.weight'],
    f'{lm}.final_ln.bias': state['transformer.ln_f.bias'],
    f'{lm}.softmax.logits_ffn.linear.w': state['lm_head.weight'].T,
    f'{lm}.softmax.logits_ffn.bias.b': state['lm_head.bias'],
  }
  for i in range(model.config.n_layer):
    old, new = f'transformer.h.{i}', f'{lm}.transformer.x_layers_{i}'
    qkv = [state[f'{old}.attn.{c}_proj.weight'] for c in 'qkv']
    ffn = f'{new}.ff_layer.ffn_layer'
    result |= {
      f'{new}.self_attention.combined_qkv.w': np.stack(
        [w.T.reshape(d, n, d // n) for w in qkv]
      ),
      f'{new}.self_attention.post.w': (
        state[f'{old}.attn.out_proj.weight'].reshape(d, n, d // n)
      ),
      f'{ffn}1.linear.w': state[f'{old}.mlp.fc_in.weight'].T,
      f'{ffn}1.bias.b': state[f'{old}.mlp.fc_in.bias'],
      f'{ffn}2.linear.w': state[f'{old}.mlp.fc_out.weight'].T,
      f'{ffn}2.bias.b': state[f'{old}.mlp.fc_out.bias'],
      f'{new}.layer_norm.scale': state[f'{old}.ln_1.weight'],
      f'{new}.layer_norm.bias': state[f'{old}.ln_1.bias'],
    }
  return result
