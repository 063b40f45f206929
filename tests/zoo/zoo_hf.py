"""Tiny, randomly initialised transformers models for tracer tests.

Nothing is downloaded.  For a model class we take its config class, rebuild the config from small
values (recursively for nested configs), construct the model and make inputs from the names in the
signature of ``forward``.  What the generic rules get wrong is corrected in ``CONFIG_OVERRIDES``.

``zoo_hf.txt`` lists the combinations known to work: ``model_type ClassName recipe`` per line,
where the recipe is a key of ``RECIPES``.
"""

import dataclasses
import functools
import inspect
import re
from pathlib import Path

import torch

VOCAB = 128
FIRST_SPECIAL = 100  # ordinary text tokens are drawn from 5..89, special ids start here
HIDDEN = 32
IMAGE = 32
PATCH = 8
LAYERS = 4

# ------------------------------------------------------------------------------------------------
# Tiny configs
# ------------------------------------------------------------------------------------------------

# Integer fields with an exact name.
INT_FIELDS = {
    "num_attention_heads": 4,
    "n_head": 4,
    "num_heads": 4,
    "n_heads": 4,
    "attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "dim_head": 8,
    "d_head": 8,
    "d_kv": 8,
    "attention_head_dim": 8,
    "v_head_dim": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 16,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "index_head_dim": 8,
    "index_n_heads": 2,
    "index_topk": 4,
    "num_hidden_layers": LAYERS,
    "n_layer": LAYERS,
    "n_layers": LAYERS,
    "num_layers": LAYERS,
    "layers": LAYERS,
    "depth": LAYERS,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "num_decoder_layers": 3,
    "num_encoder_layers": 3,
    "max_window_layers": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "n_positions": 128,
    "context_length": 128,
    "type_vocab_size": 4,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "image_size": IMAGE,
    "patch_size": PATCH,
    "window_size": 4,
    "num_frames": 2,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "top_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "sliding_window": 6,
    "num_queries": 10,
    "num_labels": 3,
    "num_mel_bins": 16,
    "n_mels": 16,
    "n_mel_bins": 16,
    "feature_size": 16,
    "num_position_embeddings": 64,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "chunk_size": 8,
    "num_denoising": 4,
    "codebook_size": 32,
    "num_embeddings": 32,
    "image_seq_length": 16,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "ssm_state_size": 8,
    "mamba_chunk_size": 8,
    "state_size": 8,
    "time_step_rank": 4,
    "num_query_tokens": 4,
    "num_latents": 6,
    "resampler_n_latents": 4,
    "prompt_length": 4,
    "query_pre_attn_scalar": 8,
    "rotary_dim": 4,
    "num_kv_shared_layers": 0,
    "train_num_points": 32,
    "num_patches": 16,
    "local_attention": 8,
    "attention_window_size": 8,
    "block_size": 8,
    "num_prototypes": 4,
    "num_codevectors_per_group": 16,
    "max_2d_position_embeddings": 128,
    "upsample_initial_channel": 32,
    "num_codebooks": 4,
    "insert_layer_id": 2,
    "num_speakers": 4,
    "num_register_tokens": 2,
    "mm_tokens_per_image": 4,
    "num_pos_feats": 16,
    "pretrain_image_size": IMAGE,
    "encoder_stride": 8,
    "num_upsampling_stages": 2,
    "positional_encoding_temperature": 100,
    "num_groups": 4,
    "upsample_groups": 2,
    "num_quantizers": 4,
    "n_codebooks": 4,
    "resampler_depth": 2,
    "cross_attention_frequency": 2,
    "speech_decoder_postnet_layers": 2,
    "head_size": 8,
    "attention_head_size": 8,
}

# Integer fields whose name matches are set to the value when the default is larger.
INT_PATTERNS = [
    (r"(_num_layers|_layers|_depth|num_.*blocks|num_.*layers)$", 2),
    (r"(_num_attention_heads|_heads|_n_heads)$", 4),
    (r"_key_value_heads$", 2),
    (r"(vocab_size|vocab_sizes)$", VOCAB),
    (r"(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|mlp_dim|inner_size|feedforward.*)$", 64),
    (r"(hidden_size|hidden_dim|d_model|n_embd|embed_dim|emb_dim|embedding_size|embedding_dim|width)$", HIDDEN),
    (r"(_size|_dim|_dims|_channels|_filters|_features|_units|^dim|^channels|_in|_out)$", HIDDEN),
]
KEEP = re.compile(
    r"kernel|stride|padding|rate$|ratio|_loss_|_cost$|ignore|temperature|_bins$|num_channels|in_chans"
    r"|audio_channels|input_channels|temporal_patch_size|merge_size|crop|pool_size|vote|_std|max_length"
)
LAYER_INDEX = re.compile(r"(index|indexes|indices|_idxs|idx|global_attention_blocks|feature_layer)$")


def _tiny_int(name, value):
    if name == "patch_size":
        return min(value, PATCH)
    if name in INT_FIELDS:
        return INT_FIELDS[name]
    if KEEP.search(name):
        return value
    for pattern, small in INT_PATTERNS:
        if re.search(pattern, name):
            return min(value, small)
    return value


def _tiny_list(name, value):
    """Shrink a list of ints, keeping its length."""
    if LAYER_INDEX.search(name):
        return value if max(value) < LAYERS else list(range(LAYERS))[-len(value) :]
    if re.search(r"depths|num_blocks|blocks_per_stage|block_repeats|layer_repeats|numb_of_layers", name):
        return [min(v, 1 + i % 2) for i, v in enumerate(value)]
    if re.search(r"heads", name):
        return [2 for _ in value]
    if re.search(r"image_size", name):
        return [IMAGE for _ in value]
    if name == "patch_size":
        return [PATCH for _ in value]
    if KEEP.search(name) or max(value) <= 32:
        return value
    if re.search(r"size|dim|channel", name):
        return [v if v <= 8 else max(8, v // 16 // 8 * 8) for v in value]
    return value


def tiny_config(config_class, overrides=None, ids=None, default=None):
    """An instance of ``config_class`` with every dimension shrunk, nested configs included.

    ``overrides`` is applied last; a dict for a nested config is merged into the nested overrides.
    ``ids`` maps the names of special tokens to their ids and is shared by the whole tree.
    ``default`` is the full-size config, which an outer config may have made with its own flags.
    """
    from transformers import PreTrainedConfig

    overrides = dict(overrides or {})
    ids = {} if ids is None else ids
    nested_in_another = default is not None
    default = default if nested_in_another else config_class()
    inherited = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    kwargs = {}
    for field in dataclasses.fields(config_class):
        name, declared = field.name, field.default
        if name in overrides and not isinstance(overrides[name], dict):
            continue
        nested = default.__dict__.get(name)
        if isinstance(nested, PreTrainedConfig):
            extra = overrides.pop(name, {})
            extra = {**CONFIG_OVERRIDES.get(nested.model_type, {}), **extra}
            kwargs[name] = tiny_config(type(nested), extra, ids, nested)
        elif name in inherited:
            continue
        elif isinstance(declared, (bool, str)):
            if nested_in_another and default.__dict__.get(name, declared) != declared:
                kwargs[name] = default.__dict__[name]
        elif re.search(r"_token_(id|index)$", name):
            if isinstance(declared, int) and declared >= FIRST_SPECIAL:
                kwargs[name] = ids.setdefault(name, FIRST_SPECIAL + len(ids))
            elif isinstance(declared, (list, tuple)):
                kwargs[name] = [2]
        elif isinstance(declared, int):
            kwargs[name] = _tiny_int(name, declared)
        elif isinstance(declared, (list, tuple)) or callable(field.default_factory):
            value = default.__dict__.get(name)
            if isinstance(value, (list, tuple)) and value and all(type(v) is int for v in value):
                small = _tiny_list(name, list(value))
                kwargs[name] = type(value)(small)
    rope = default.__dict__.get("rope_parameters")
    if isinstance(rope, dict) and "mrope_section" in rope:  # head_dim 8 has 4 frequencies to share out
        kwargs["rope_parameters"] = {**rope, "mrope_section": [2, 1, 1]}
    if "kv_lora_rank" in kwargs and "num_key_value_heads" in kwargs:  # latent attention shares no heads
        kwargs["num_key_value_heads"] = kwargs["num_attention_heads"]
    chosen = default.__dict__.get("_out_indices") if nested_in_another else None
    if chosen and "_out_indices" not in kwargs and "out_indices" not in overrides:  # stages a backbone returns
        stages = len(overrides.get("depths") or kwargs.get("depths") or range(LAYERS))
        stages += default.stage_names[0] == "stem"
        kwargs["out_indices"] = list(range(stages))[-len(chosen) :]
    kwargs.update(overrides)
    return config_class(**kwargs)


ROPE = {"rope_type": "default", "rope_theta": 10000.0}
MROPE = {**ROPE, "mrope_section": [2, 1, 1]}
SMALL_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}

# Corrections for what the rules above get wrong, by model type.
CONFIG_OVERRIDES = {
    "audio-spectrogram-transformer": {"max_length": 64},
    "autoformer": {"prediction_length": 4, "context_length": 16},
    "informer": {"prediction_length": 4, "context_length": 16},
    "time_series_transformer": {"prediction_length": 4, "context_length": 16},
    "bamba": {"attn_layer_indices": [1, 3], "mamba_n_groups": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "bailing_hybrid": {"layer_group_size": 2},
    "beit": {"out_indices": [1, 2, 3, 4]},
    "bridgetower": {"vision_config": {"hidden_size": 64}, "text_config": {"hidden_size": 32}},
    "glm4v_text": {"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
    "glm4v_moe_text": {"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
    "glm_image_text": {"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
    "glm_ocr_text": {"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
    "glm46v_text": {"rope_parameters": {**MROPE, "partial_rotary_factor": 1.0}},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "num_layers": 4},
    "hunyuan_v1_moe": {"rope_parameters": {**ROPE, "alpha": 1.0}, "head_dim": 8},
    "hunyuan_vl_text": {"rope_parameters": {**MROPE, "alpha": 1.0}, "head_dim": 8},
    "ministral": {"head_dim": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "expand": 2},
    "mask2former": {"feature_size": 32, "mask_feature_size": 32},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
    "perceiver": {
        "d_latents": 32,
        "d_model": 32,
        "num_self_attends_per_block": 3,
        "num_latents": 6,
        "num_cross_attention_heads": 2,
        "num_self_attention_heads": 2,
    },
    "qwen2_vl_text": {"rope_parameters": MROPE},
    "qwen2_5_vl_text": {"rope_parameters": MROPE},
    "qwen2_5_omni_text": {"rope_parameters": MROPE},
    "qwen3_omni_moe_text": {"rope_parameters": {**MROPE, "mrope_interleaved": True}},
    "reformer": {"axial_pos_embds_dim": [8, 24], "axial_pos_shape": [4, 8], "hidden_size": 32},
    "swin": {"window_size": 2, "image_size": 32, "depths": [2, 2, 2], "num_heads": [2, 2, 4]},
    "swinv2": {"window_size": 2, "image_size": 32, "depths": [2, 2, 2], "num_heads": [2, 2, 4]},
    "donut-swin": {"window_size": 2, "image_size": 32, "depths": [2, 2, 2], "num_heads": [2, 2, 4]},
    "sam": {"mask_decoder_config": {"hidden_size": 32}, "prompt_encoder_config": {"hidden_size": 32}},
    "wav2vec2-bert": {"vocab_size": VOCAB},
    "wav2vec2-conformer": {"vocab_size": VOCAB},
    "esm": {"vocab_size": VOCAB, "pad_token_id": 1, "mask_token_id": 99},
    "esmc": {"vocab_size": VOCAB},
    "xlstm": {"num_heads": 4, "hidden_size": 32, "qk_dim_factor": 0.5, "v_dim_factor": 1.0},
    "zamba2": {"layers_block_type": ["mamba", "mamba", "hybrid", "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
    "xmod": {"default_language": "en_XX"},
    "resnet": SMALL_RESNET,
    "qwen2_5_vl_vision": {"window_size": 32, "fullatt_block_indexes": [1, 3]},
    "qwen2_5_omni_vision_encoder": {"window_size": 32, "fullatt_block_indexes": [1, 3]},
    "exaone4_5_vision": {"window_size": 32, "fullatt_block_indexes": [1, 3]},
    "deepseek_v2": {"topk_method": "greedy", "num_experts_per_tok": 2},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "head_dim": 8},
    "glpn": {"hidden_sizes": [8, 16, 24, 32], "decoder_hidden_size": 32},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "lilt": {"hidden_size": 48, "num_attention_heads": 4},
    "bros": {"hidden_size": 32, "dim_bbox": 8},
    "step3p7_text": {"sliding_window": 4},
    "grounding-dino": {"max_text_len": 8, "num_queries": 6},
    "mm-grounding-dino": {"max_text_len": 8, "num_queries": 6},
    "superpoint": {
        "encoder_hidden_sizes": [8, 16, 16, 16],
        "decoder_hidden_size": 16,
        "keypoint_decoder_dim": 65,
        "descriptor_decoder_dim": 16,
    },
    "sam2_hiera_det_model": {
        "embed_dim_per_stage": [8, 16, 32, 64],
        "hidden_size": 8,
        "num_attention_heads_per_stage": [1, 1, 2, 2],
        "image_size": [64, 64],
        "query_stride": [2, 2],
        "blocks_per_stage": [1, 2, 2, 1],
        "global_attention_blocks": [3],
        "window_size_per_stage": [4, 2, 2, 2],
        "window_positional_embedding_background_size": [4, 4],
    },
    "glm5_next_text": {"num_key_value_heads": 4, "index_topk": 16},
    "poolformer": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
    "zamba": {"num_hidden_layers": 6, "layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "hybrid", "mamba"]},
    "siglip2_vision_model": {"num_patches": 16, "image_size": IMAGE},
    "hgnet_v2": {"stem_channels": [3, 8, 8]},
    "timesfm": {"hidden_size": 32, "head_dim": 8},
    "vitpose_backbone": {"num_experts": 1},
    "efficientnet": {
        "hidden_dim": 64,
        "in_channels": [32, 16, 24, 40],
        "out_channels": [16, 24, 40, 64],
        "kernel_sizes": [3, 3, 5, 3],
        "strides": [1, 2, 2, 1],
        "num_block_repeats": [1, 1, 2, 1],
        "expand_ratios": [1, 2, 2, 2],
        "depthwise_padding": [],
        "stem_channels": 32,
    },
    "univnet": {"model_in_channels": 64, "num_mel_bins": 16},
    "seggpt": {"merge_index": 0, "intermediate_hidden_state_indices": [1, 2, 3]},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "hunyuan_v1_dense": {"rope_parameters": {**ROPE, "alpha": 1.0}, "head_dim": 8},
    "segformer": {"hidden_sizes": [8, 16, 24, 32], "decoder_hidden_size": 16},
    "pvt": {"hidden_sizes": [8, 16, 32, 64], "image_size": 64, "depths": [1, 1, 1, 1]},
    "gemma3n_text": {"vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 8},
    "gemma4_text": {"vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 8},
    "dinov3_convnext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
    "textnet": {"stem_out_channels": 8, "hidden_sizes": [8, 8, 16, 16, 32]},
}

# ------------------------------------------------------------------------------------------------
# Inputs
# ------------------------------------------------------------------------------------------------


def _nested(config, *names):
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    return config


def _get(config, *names, default=None):
    for name in names:
        value = config.__dict__.get(name)
        if value is None:
            try:
                value = getattr(config, name, None)
            except Exception:
                value = None
        if value is not None:
            return value
    return default


def _pair(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def _tokens(*shape):
    return torch.randint(5, 90, shape)


def _image_shape(config):
    vision = _nested(config, "vision_config", "backbone_config", "encoder_config", "encoder")
    if isinstance(vision, str) or not hasattr(vision, "to_dict"):
        vision = config
    size = _get(vision, "image_size", "img_size", default=_get(config, "image_size", default=64))
    if isinstance(size, dict):
        size = (size.get("height", IMAGE), size.get("width", IMAGE))
    channels = _get(vision, "num_channels", "in_channels", "in_chans", default=3)
    return (channels if isinstance(channels, int) else 3, *_pair(size))


def _mels(config):
    audio = _nested(config, "audio_config", "speech_config", "encoder_config", "speech_encoder_config")
    return _get(
        audio,
        "num_mel_bins",
        "feature_size",
        "n_mels",
        "input_feat_per_channel",
        "input_feat_size",
        "feature_projection_input_dim",
        "input_dim",
        default=_get(config, "num_mel_bins", default=16),
    )


def text_inputs(model, names):
    inputs = {"input_ids": _tokens(2, 8)}
    if "attention_mask" in names:
        inputs["attention_mask"] = torch.ones(2, 8, dtype=torch.long)
    if "bbox" in names:
        inputs["bbox"] = torch.randint(0, 50, (2, 8, 2)).repeat(1, 1, 2) + torch.tensor([0, 0, 20, 20])
    return inputs | decoder_inputs(model, names)


def decoder_inputs(model, names):
    if "decoder_input_ids" in names:
        return {"decoder_input_ids": _tokens(2, 6)}
    return {}


def image_inputs(model, names):
    return {"pixel_values": torch.rand(2, *_image_shape(model.config))} | decoder_inputs(model, names)


def wide_image_inputs(model, names):
    return {"pixel_values": torch.rand(1, 3, 64, 64)}


def video_inputs(model, names):
    channels, height, width = _image_shape(model.config)
    frames = _get(model.config, "num_frames", "frames_per_clip", default=2)
    name = "pixel_values" if "pixel_values" in names else "pixel_values_videos"
    return {name: torch.rand(1, frames, channels, height, width)}


def wave_inputs(model, names):
    return {"input_values": torch.randn(2, 1600)} | decoder_inputs(model, names)


def mono_wave_inputs(model, names):
    return {"input_values": torch.randn(1, 1, 1920)}


def mel_inputs(model, names):
    inputs = {"input_features": torch.randn(2, _mels(model.config), 32)}
    if "input_features_mask" in names:
        inputs["input_features_mask"] = torch.ones(2, 32, dtype=torch.long)
    return inputs | decoder_inputs(model, names)


def long_mel_inputs(model, names):
    frames = 2 * _get(_nested(model.config, "audio_config"), "max_source_positions", default=64)
    return {"input_features": torch.randn(2, _mels(model.config), frames)} | decoder_inputs(model, names)


def mel_last_inputs(model, names):
    inputs = {"input_features": torch.randn(2, 32, _mels(model.config))}
    if "attention_mask" in names:
        inputs["attention_mask"] = torch.ones(2, 32, dtype=torch.long)
    return inputs | decoder_inputs(model, names)


def image_and_text_inputs(model, names):
    """Text without placeholders beside an image: two towers, or a text model with cross-attention."""
    return text_inputs(model, names) | image_inputs(model, names)


def _with_placeholders(token, count):
    ids = torch.cat([_tokens(3), torch.full((count,), token), _tokens(4)])[None]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _feature_count(features):
    """How many rows the output of ``get_*_features`` has, whatever its container."""
    if hasattr(features, "pooler_output") and features.pooler_output is not None:
        features = features.pooler_output
    elif hasattr(features, "last_hidden_state"):
        features = features.last_hidden_state
    if isinstance(features, (list, tuple)):
        return sum(_feature_count(f) for f in features)
    return features.numel() // features.shape[-1]


def _method(model, name):
    for owner in (model, getattr(model, "model", None), getattr(model, "thinker", None)):
        if hasattr(owner, name):
            return getattr(owner, name)
    raise AttributeError(name)


def image_in_text_inputs(model, names):
    """One image whose features replace the placeholder tokens of the text."""
    pixels = {"pixel_values": torch.rand(1, *_image_shape(model.config))}
    with torch.no_grad():
        count = _feature_count(_method(model, "get_image_features")(**pixels))
    return _with_placeholders(_get(model.config, "image_token_id", "image_token_index"), count) | pixels


def tiled_image_in_text_inputs(model, names):
    """The same with the image cut in tiles (batch, tiles, channels, height, width)."""
    shape = _image_shape(model.config)
    pixels = {"pixel_values": torch.rand(1, 2, *shape)}
    if "image_sizes" in names:
        pixels["image_sizes"] = torch.tensor([[shape[1], shape[2]]])
    with torch.no_grad():
        count = _feature_count(_method(model, "get_image_features")(**pixels))
    return _with_placeholders(_get(model.config, "image_token_id", "image_token_index"), count) | pixels


def sized_image_in_text_inputs(model, names):
    """The same with the image sizes given."""
    shape = _image_shape(model.config)
    pixels = {"pixel_values": torch.rand(1, *shape), "image_sizes": torch.tensor([[shape[1], shape[2]]])}
    with torch.no_grad():
        count = _feature_count(_method(model, "get_image_features")(**pixels))
    return _with_placeholders(_get(model.config, "image_token_id", "image_token_index"), count) | pixels


def _patches(model, grid=(1, 4, 4)):
    vision = _nested(model.config, "vision_config")
    channels = _get(vision, "in_channels", "num_channels", "in_chans", default=3)
    patch, temporal = _pair(_get(vision, "patch_size"))[0], _get(vision, "temporal_patch_size", default=1)
    return torch.randn(grid[0] * grid[1] * grid[2], channels * temporal * patch * patch), torch.tensor([grid])


def patches_in_text_inputs(model, names):
    """An image as flattened patches with a (time, height, width) grid."""
    pixels, grid = _patches(model)
    images = {"pixel_values": pixels, "image_grid_thw": grid}
    with torch.no_grad():
        count = _feature_count(_method(model, "get_image_features")(**images))
    token = _get(model.config, "image_token_id", "image_token_index")
    inputs = _with_placeholders(token, count) | images
    if "mm_token_type_ids" in names:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == token).long()
    return inputs


def grid_patches_inputs(model, names):
    """A vision tower that takes flattened patches and a grid."""
    pixels, grid = _patches(model)
    main = "pixel_values" if "pixel_values" in names else "hidden_states"
    return {main: pixels, "grid_thw" if "grid_thw" in names else "image_grid_thw": grid}


def audio_in_text_inputs(model, names):
    """Audio features that replace the placeholder tokens of the text."""
    frames = 2 * _get(_nested(model.config, "audio_config"), "max_source_positions", default=32)
    audio = {"input_features": torch.randn(1, _mels(model.config), frames)}
    method = _method(model, "get_audio_features")
    wanted = inspect.signature(method).parameters
    for mask in ("input_features_mask", "feature_attention_mask", "audio_attention_mask"):
        if mask in wanted:
            audio[mask] = torch.ones(1, frames, dtype=torch.long)
    with torch.no_grad():
        count = _feature_count(method(**audio))
    return _with_placeholders(_get(model.config, "audio_token_id", "audio_token_index"), count) | audio


def series_inputs(model, names):
    config = model.config
    past = _get(config, "context_length", default=32)
    if "past_time_features" not in names:
        return {"past_values": torch.randn(2, past, _get(config, "num_input_channels", default=1))}
    past += max(_get(config, "lags_sequence", default=[0]))
    future = _get(config, "prediction_length", default=4)
    features = _get(config, "num_time_features", default=0)
    return {
        "past_values": torch.randn(2, past),
        "past_time_features": torch.randn(2, past, features),
        "past_observed_mask": torch.ones(2, past),
        "future_values": torch.randn(2, future),
        "future_time_features": torch.randn(2, future, features),
    }


def points_inputs(model, names):
    """A promptable segmenter: an image and a point."""
    return image_inputs(model, names) | {"input_points": torch.rand(2, 1, 1, 2) * IMAGE}


def code_inputs(model, names):
    codebooks = _get(model.config, "num_codebooks", "audio_channels", "n_codebooks", default=4)
    return {"input_ids": torch.randint(0, 20, (1, 6, codebooks))}


def main_input(model, names):
    """Hidden states for an encoder without an embedding of its own."""
    return {model.main_input_name: torch.randn(2, 8, _get(model.config, "hidden_size", default=HIDDEN))}


# Tried in this order by the probe: the richest input first.
RECIPES = {
    "patches+text": (patches_in_text_inputs, {"input_ids", "image_grid_thw"}),
    "image>text": (image_in_text_inputs, {"input_ids", "pixel_values"}),
    "sized-image>text": (sized_image_in_text_inputs, {"input_ids", "pixel_values", "image_sizes"}),
    "tiles>text": (tiled_image_in_text_inputs, {"input_ids", "pixel_values"}),
    "audio>text": (audio_in_text_inputs, {"input_ids", "input_features"}),
    "image+text": (image_and_text_inputs, {"input_ids", "pixel_values"}),
    "series": (series_inputs, {"past_values"}),
    "points": (points_inputs, {"pixel_values", "input_points"}),
    "grid": (grid_patches_inputs, {"grid_thw"}),
    "image": (image_inputs, {"pixel_values"}),
    "image-64": (wide_image_inputs, {"pixel_values"}),
    "video": (video_inputs, {"pixel_values"}),
    "videos": (video_inputs, {"pixel_values_videos"}),
    "mel": (mel_inputs, {"input_features"}),
    "mel-last": (mel_last_inputs, {"input_features"}),
    "mel-long": (long_mel_inputs, {"input_features"}),
    "wave": (wave_inputs, {"input_values"}),
    "mono-wave": (mono_wave_inputs, {"input_values"}),
    "text": (text_inputs, {"input_ids"}),
    "codes": (code_inputs, {"input_ids"}),
    "hidden": (main_input, set()),
}


# ------------------------------------------------------------------------------------------------
# Models
# ------------------------------------------------------------------------------------------------


def config_for(model_type):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return tiny_config(CONFIG_MAPPING[model_type], CONFIG_OVERRIDES.get(model_type))


def build_model(model_type, class_name, seed=0):
    import transformers

    torch.manual_seed(seed)
    model = getattr(transformers, class_name)(config_for(model_type))
    return model.eval()


def make_inputs(model, recipe, seed=1):
    function, needed = RECIPES[recipe]
    names = set(inspect.signature(model.forward).parameters)
    if not needed <= names:
        raise TypeError(f"{type(model).__name__}.forward takes no {sorted(needed - names)}")
    torch.manual_seed(seed)
    return {k: v for k, v in function(model, names).items() if v is not None}


def entry(model_type, class_name, recipe):
    def build():
        model = build_model(model_type, class_name)
        return model, make_inputs(model, recipe)

    return f"hf/{model_type}/{class_name}", build


@functools.cache
def _offered():
    """Names of all classes: to ask for one would import its architecture, and there are hundreds."""
    import transformers

    return frozenset(dir(transformers))


def transformers_entries(list_file=None):
    path = Path(list_file or Path(__file__).with_name("zoo_hf.txt"))
    if not path.exists():
        return
    offered = _offered()
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        model_type, class_name, recipe = line.split()
        if class_name in offered:
            yield entry(model_type, class_name, recipe)
