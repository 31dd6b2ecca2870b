"""A model server that is not ours: llama.cpp's, with a tiny model made of random numbers.

    independent.py PORT

It speaks the chat, responses and messages formats. What it says is noise, half of it not even
text, which makes it a good upstream to be careful with.
"""

import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy
import xllamacpp

WIDTH, LAYERS, HEADS, INNER, CONTEXT = 64, 2, 4, 128, 2048


def vocabulary():
    """One token for each byte, and the three no vocabulary can do without."""
    special = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", gguf.TokenType.CONTROL), ("</s>", gguf.TokenType.CONTROL)]
    bytes_ = [(f"<0x{byte:02X}>", gguf.TokenType.BYTE) for byte in range(256)]
    words = [("▁", gguf.TokenType.NORMAL), ("▁harbour", gguf.TokenType.NORMAL)]
    return special + bytes_ + words


def write_model(path):
    random = numpy.random.default_rng(7)
    tokens = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def add(name, *shape):
        writer.add_tensor(name, random.normal(0, 0.3, shape).astype(numpy.float32))

    def ones(name):
        writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))

    add("token_embd.weight", len(tokens), WIDTH)
    add("output.weight", len(tokens), WIDTH)
    ones("output_norm.weight")
    for layer in range(LAYERS):
        lead = f"blk.{layer}"
        ones(f"{lead}.attn_norm.weight")
        ones(f"{lead}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{lead}.{part}.weight", WIDTH, WIDTH)
        add(f"{lead}.ffn_gate.weight", INNER, WIDTH)
        add(f"{lead}.ffn_up.weight", INNER, WIDTH)
        add(f"{lead}.ffn_down.weight", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(port):
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "noise.gguf"
        write_model(model)
        settings = xllamacpp.CommonParams()
        settings.model.path = str(model)
        settings.hostnames = ["127.0.0.1"]
        settings.port = port
        settings.n_ctx = CONTEXT
        settings.n_parallel = 2
        settings.cpuparams.n_threads = 1
        settings.cpuparams_batch.n_threads = 1
        settings.warmup = False
        # The same noise in every run, and none that ends with its first token.
        settings.sampling.seed = 7
        settings.sampling.ignore_eos = True
        server = xllamacpp.Server(settings)
        print(f"listening on {server.listening_address}", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main(int(sys.argv[1]))
