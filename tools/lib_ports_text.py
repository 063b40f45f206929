"""Real ports of text models: see ``lib_ports.py``."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from lib_ports import Port, carried, port, randomized, renamed

_DECODER = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 80, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False,
}  # fmt: skip
_LITGPT = {
    "block_size": 32, "vocab_size": 64, "padded_vocab_size": 64, "n_layer": 2, "n_head": 4, "n_embd": 32,
    "n_query_groups": 2, "rotary_percentage": 1.0, "parallel_residual": False, "bias": False,
    "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": 80,
}  # fmt: skip
_TUNE = {
    "vocab_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32, "intermediate_dim": 80,
    "max_seq_len": 32,
}  # fmt: skip


def _decoded(reference: nn.Module, suspect: nn.Module) -> Port:
    tokens = torch.randint(3, 60, (2, 7))
    return Port(randomized(reference), suspect, {"input_ids": tokens}, tokens, lambda out: out.logits)


def _litgpt(reference: nn.Module, copy: str, **options: Any) -> Port:
    """A port to litgpt, with the weights copied by one of its own functions."""
    from litgpt.model import GPT, Config
    from litgpt.scripts import convert_hf_checkpoint

    config = Config(**{**_LITGPT, **options})
    suspect = GPT(config)
    pair = _decoded(reference, suspect)
    state: dict[str, Tensor] = {}
    fused = [] if copy == "copy_weights_gpt_neox" else [_PerLayer()]
    weights = reference.state_dict()
    if copy == "copy_weights_gpt_neox":  # as it is named in checkpoints
        weights = renamed(weights, (r"^lm_head", "embed_out"))
    getattr(convert_hf_checkpoint, copy)(config, *fused, state, weights)
    carried(suspect, state)
    return pair


class _PerLayer(dict[Any, dict[str, dict[str, Tensor]]]):
    """Weights of queries, keys and values by layer, as litgpt's functions collect them."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the table of a layer, made where there is none."""
        return super().setdefault(key, {"weight": {}, "bias": {}})


@port("llama/litgpt")
def _() -> Port:
    config = transformers.LlamaConfig(**_DECODER, rms_norm_eps=1e-5, rope_theta=10000.0)
    return _litgpt(transformers.LlamaForCausalLM(config), "copy_weights_hf_llama")


@port("mistral/litgpt")
def _() -> Port:
    config = transformers.MistralConfig(**_DECODER, rms_norm_eps=1e-5, sliding_window=None)
    return _litgpt(transformers.MistralForCausalLM(config), "copy_weights_hf_llama")


@port("gemma/litgpt")
def _() -> Port:
    config = transformers.GemmaConfig(**{**_DECODER, "tie_word_embeddings": True}, head_dim=8)
    options = {"mlp_class_name": "GemmaMLP", "gelu_approximate": "tanh", "scale_embeddings": True, "norm_eps": 1e-6}
    return _litgpt(transformers.GemmaForCausalLM(config), "copy_weights_hf_llama", name="Gemma-tiny", **options)


@port("qwen2/litgpt")
def _() -> Port:
    config = transformers.Qwen2Config(**_DECODER)
    reference = transformers.Qwen2ForCausalLM(config)
    return _litgpt(reference, "copy_weights_qwen_2_5", attn_bias=True, norm_eps=1e-6)


@port("neox/litgpt")
def _() -> Port:
    own = {name: value for name, value in _DECODER.items() if name != "num_key_value_heads"}
    config = transformers.GPTNeoXConfig(**own, rotary_pct=0.25)
    options: dict[str, Any] = {
        "n_query_groups": 4, "rotary_percentage": 0.25, "parallel_residual": True, "bias": True, "attn_bias": True,
        "norm_class_name": "LayerNorm", "mlp_class_name": "GptNeoxMLP",
    }  # fmt: skip
    return _litgpt(transformers.GPTNeoXForCausalLM(config), "copy_weights_gpt_neox", **options)


@port("llama/torchtune")
def _() -> Port:
    from torchtune.models.convert_weights import hf_to_tune
    from torchtune.models.llama3 import llama3

    config = transformers.LlamaConfig(**_DECODER, rms_norm_eps=1e-5, rope_theta=10000.0)
    reference, suspect = transformers.LlamaForCausalLM(config), llama3(**_TUNE, rope_base=10000)
    pair = _decoded(reference, suspect)
    carried(suspect, hf_to_tune(reference.state_dict(), num_heads=4, num_kv_heads=2, dim=32))
    return pair


@port("mistral/torchtune")
def _() -> Port:
    from torchtune.models.convert_weights import hf_to_tune
    from torchtune.models.mistral import mistral

    config = transformers.MistralConfig(**_DECODER, rms_norm_eps=1e-5, sliding_window=None)
    reference, suspect = transformers.MistralForCausalLM(config), mistral(**_TUNE)
    pair = _decoded(reference, suspect)
    carried(suspect, hf_to_tune(reference.state_dict(), num_heads=4, num_kv_heads=2, dim=32))
    return pair


@port("qwen2/torchtune")
def _() -> Port:
    from torchtune.models.qwen2 import qwen2
    from torchtune.models.qwen2._convert_weights import qwen2_hf_to_tune

    config = transformers.Qwen2Config(**_DECODER, rms_norm_eps=1e-6, rope_theta=10000.0)
    reference = transformers.Qwen2ForCausalLM(config)
    suspect = qwen2(**_TUNE, norm_eps=1e-6, rope_base=10000.0)
    pair = _decoded(reference, suspect)
    carried(suspect, qwen2_hf_to_tune(reference.state_dict(), num_heads=4, num_kv_heads=2, dim=32))
    return pair


@port("t5/torchtune")
def _() -> Port:
    from torchtune.models.t5 import t5_encoder
    from torchtune.models.t5._convert_weights import t5_encoder_hf_to_tune

    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"
    )
    config.dense_act_fn = "gelu"  # the port has the exact one, T5 1.1 the approximation by tanh
    reference = randomized(transformers.T5EncoderModel(config))
    suspect = t5_encoder(
        embed_dim=32, mlp_dim=48, num_heads=4, head_dim=8, num_layers=2, rel_pos_num_buckets=32,
        rel_pos_max_dist=128, vocab_size=64, norm_eps=1e-6, max_seq_len=7,
    )  # fmt: skip
    carried(suspect, t5_encoder_hf_to_tune(reference.state_dict()))
    tokens = torch.randint(3, 60, (2, 7))
    return Port(reference, suspect, {"input_ids": tokens}, tokens, lambda out: out.last_hidden_state)


@port("phi3/torchtune")
def _() -> Port:
    from torchtune.models.phi3 import phi3
    from torchtune.models.phi3._convert_weights import phi3_hf_to_tune

    own = {**_DECODER, "num_key_value_heads": 4}  # the converter splits the fused projection into equal parts
    reference = transformers.Phi3ForCausalLM(transformers.Phi3Config(**own, rms_norm_eps=1e-5))
    suspect = phi3(**{**_TUNE, "num_kv_heads": 4}, norm_eps=1e-5)
    pair = _decoded(reference, suspect)
    carried(suspect, phi3_hf_to_tune(reference.state_dict(), num_heads=4, num_kv_heads=4, dim=32))
    return pair


class _MambaLM(nn.Module):
    """mambapy's blocks as a language model; its own one needs CUDA kernels to be imported."""

    def __init__(self, vocabulary: int, config: Any) -> None:
        from mambapy.mamba import Mamba, RMSNorm

        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.mamba = Mamba(config)
        self.norm_f = RMSNorm(config.d_model, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.d_model, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of tokens."""
        logits: Tensor = self.lm_head(self.norm_f(self.mamba(self.embedding(tokens))))
        return logits


@port("mamba/mambapy")
def _() -> Port:
    from mambapy.mamba import MambaConfig

    config = transformers.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=8)
    reference = randomized(transformers.MambaForCausalLM(config))
    suspect = _MambaLM(64, MambaConfig(d_model=32, n_layers=2, d_state=8))
    state = renamed(
        reference.state_dict(),
        (r"^backbone\.embeddings", "embedding"),
        (r"^backbone\.norm_f", "norm_f"),
        (r"^backbone", "mamba"),
    )
    carried(suspect, state)
    tokens = torch.randint(3, 60, (2, 7))
    return Port(reference, suspect, {"input_ids": tokens}, tokens, lambda out: out.logits)
