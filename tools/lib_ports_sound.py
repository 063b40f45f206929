"""Real ports of speech models: see ``lib_ports.py``."""

from __future__ import annotations

import torch
import transformers

from lib_ports import Port, carried, port, randomized, renamed


@port("whisper/openai")
def _() -> Port:
    from whisper.model import ModelDimensions, Whisper

    config = transformers.WhisperConfig(
        vocab_size=60, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=20,
        max_target_positions=12, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    reference = randomized(transformers.WhisperForConditionalGeneration(config))
    state = renamed(
        reference.state_dict(),
        (r"^proj_out.*", ""),  # tied
        (r"^model\.", ""),
        (r"embed_positions\.weight", "positional_embedding"),
        (r"embed_tokens", "token_embedding"),
        (r"\.layers\.", ".blocks."),
        (r"self_attn_layer_norm", "attn_ln"),
        (r"encoder_attn_layer_norm", "cross_attn_ln"),
        (r"self_attn", "attn"),
        (r"encoder_attn", "cross_attn"),
        (r"q_proj", "query"),
        (r"k_proj", "key"),
        (r"v_proj", "value"),
        (r"out_proj", "out"),
        (r"fc1", "mlp.0"),
        (r"fc2", "mlp.2"),
        (r"final_layer_norm", "mlp_ln"),
        (r"^encoder\.layer_norm", "encoder.ln_post"),
        (r"^decoder\.layer_norm", "decoder.ln"),
    )
    state.pop("")
    suspect = carried(Whisper(ModelDimensions(8, 20, 32, 4, 2, 60, 12, 32, 4, 2)), state)
    mel, tokens = torch.randn(2, 8, 40), torch.randint(3, 60, (2, 6))
    inputs = {"input_features": mel, "decoder_input_ids": tokens}
    return Port(reference, suspect, inputs, (mel, tokens), lambda out: out.logits)


@port("wav2vec2/torchaudio")
def _() -> Port:
    from torchaudio.models.wav2vec2.utils import import_huggingface_model

    config = transformers.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=12,
        conv_dim=[16, 16, 16], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_feat_extract_layers=3,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    reference = randomized(transformers.Wav2Vec2ForCTC(config)).eval()
    sound = torch.randn(2, 400)
    return Port(
        reference,
        import_huggingface_model(reference),
        {"input_values": sound},
        sound,
        lambda out: out.logits,
        lambda out: out[0],
    )
