"""The Triton kernels of the GPU's training step (`gpu`): forward pass, gradients and AdamW.

Every kernel works on a stack of runs; its first program index is the run. Activations are
`[run, pos * batch, …]`, position after position, and the tile of a program is a few tokens or a few
whole sums. Matrix products take operands of type `dtype` (bf16 on a GPU) and add up in float32, as
do the stream, norms, softmax and loss. Dropout zeroes what draws a number below `threshold`, and
multiplies the rest by `mask_scale`.

Of what is summed over a batch, each of the `n_slots` slots of a run gets a part: no two programs
add to the same number, so a step always gives the same bits. AdamW adds the slots up.

Triton reads the types of arguments from a call. `no_type_check` keeps the check of types, which
the tests put around every function, from a kernel.
"""

from typing import no_type_check

import triton
import triton.language as tl

# Triton then runs the kernels in Python, on a CPU, as some tests do.
INTERPRETED: bool = triton.knobs.runtime.interpret

# The factors of a hash of 32-bit integers by Chris Wellons (hash-prospector).
_M1 = tl.constexpr(0x21F0AAAD)
_M2 = tl.constexpr(0xD35A2D97)
_EPSILON = tl.constexpr(1e-5)  # of LayerNorm
# These are the places of dropout in a layer. Each has masks of its own.
ON_PATTERN = tl.constexpr(0)
ON_ATTENTION = tl.constexpr(1)
ON_HIDDEN = tl.constexpr(2)
ON_MLP = tl.constexpr(3)


# ---- parts of kernels


@triton.jit
@no_type_check
def mix(x):
    """Return a hash of 32-bit integers that reaches every bit from every bit."""
    x = x ^ (x >> 16)
    x = x * _M1
    x = x ^ (x >> 15)
    x = x * _M2
    return x ^ (x >> 15)


@triton.jit
@no_type_check
def mask_key(seeds, step, run, place):
    """Return the two words from which the masks of one place in one step are drawn."""
    number = tl.load(step).to(tl.uint32)
    first = tl.load(seeds + 2 * run).to(tl.uint32)
    second = tl.load(seeds + 2 * run + 1).to(tl.uint32)
    first = mix(mix(first ^ number) ^ place)
    return first, mix(mix(second ^ number) ^ place)


@triton.jit
@no_type_check
def is_kept(index, first, second, threshold: tl.constexpr):
    """Return True where dropout keeps the entry with this index.

    This is `mix` with one word added before it and the other one inside. With the first alone, all
    masks would be parts of one long sequence.
    """
    x = index.to(tl.uint32) + first
    x = x ^ (x >> 16)
    x = x * _M1
    x = x ^ second
    x = x ^ (x >> 15)
    x = x * _M2
    x = x ^ (x >> 15)
    return (x & 0xFFFF) >= threshold


@triton.jit
@no_type_check
def normed(x):
    """Return the LayerNorm of rows, without scale and shift, and the reciprocal of their spread."""
    d_model: tl.constexpr = x.shape[1]
    mean = tl.sum(x, 1) / d_model
    centred = x - mean[:, None]
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, 1) / d_model + _EPSILON)
    return centred * rstd[:, None], rstd


@triton.jit
@no_type_check
def norm_gradient(scaled, unit, rstd):
    """Return the gradient of a norm's input, from that of `unit`, its output before the scale."""
    d_model: tl.constexpr = unit.shape[1]
    along = tl.sum(scaled * unit, 1) / d_model
    return (scaled - tl.sum(scaled, 1)[:, None] / d_model - unit * along[:, None]) * rstd[:, None]


@triton.jit
@no_type_check
def rotated(x, cosine, sine):
    """Rotate each adjacent pair of coordinates; `cosine` and `sine` are `[rows, pairs]`."""
    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    first, second = tl.split(tl.reshape(x, (rows, columns // 2, 2)))
    pair = tl.join(first * cosine - second * sine, first * sine + second * cosine)
    return tl.reshape(pair, (rows, columns))


@triton.jit
@no_type_check
def embedded(parameters, row, token, at, d, d_model: tl.constexpr, present):
    """Return the stream that enters layer 0 at (token, position) pairs, `[rows, d_model]`."""
    which = tl.load(token + row, mask=present, other=0)
    x = tl.load(parameters + at + which[:, None] * d_model + d[None, :])
    return tl.where(present[:, None], x, 0.0) * tl.sqrt(d_model + 0.0)


@triton.jit
@no_type_check
def projected(n, weight, bias, cosine, sine):
    """Return rotated queries, keys or values."""
    y = tl.dot(n, weight, input_precision="ieee") + tl.load(bias)[None, :]
    return rotated(y, cosine, sine)


# ---- forward


@triton.jit(do_not_specialize=["first_query"])
@no_type_check
def queries_keys_values(
    x,
    token,
    position,
    parameters,
    rounded,
    cosines,
    sines,
    qkv,
    n_parameters,
    at_embed,
    at_norm,
    at_weight,
    at_bias,
    n_tokens,
    batch,
    first_query,
    from_embedding: tl.constexpr,
    d_model: tl.constexpr,
    tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Write rotated queries, keys and values, `[run, token, 3 * d_model]`.

    In layer 0 (`from_embedding`), tokens are the (token, position) pairs that can occur.
    """
    run = tl.program_id(0).to(tl.int64)
    parameters += run * n_parameters
    rounded += run * n_parameters
    x += run * n_tokens * d_model
    qkv += run * n_tokens * 3 * d_model
    d = tl.arange(0, d_model)
    pair = tl.arange(0, d_model // 2)
    square: tl.constexpr = d_model * d_model
    transposed = d[None, :] * d_model + d[:, None]  # a weight as (d_in, d_out)
    of_queries = tl.load(rounded + at_weight + transposed)
    of_keys = tl.load(rounded + at_weight + square + transposed)
    of_values = tl.load(rounded + at_weight + 2 * square + transposed)
    scale = tl.load(parameters + at_norm + d)
    shift = tl.load(parameters + at_norm + d_model + d)
    stride = tl.num_programs(1) * tile
    for tile_start in range(tl.program_id(1) * tile, n_tokens, stride):
        m = tile_start + tl.arange(0, tile)
        present = m < n_tokens
        if from_embedding:
            stream = embedded(parameters, m, token, at_embed, d, d_model, present)
            pos = tl.load(position + m, mask=present, other=0)
            queries = True
        else:
            at_token = m[:, None] * d_model + d[None, :]
            stream = tl.load(x + at_token, mask=present[:, None], other=0.0)
            pos = m // batch
            queries = tile_start // batch >= first_query
        unit, _ = normed(stream)
        n = (unit * scale[None, :] + shift[None, :]).to(dtype)
        cosine = tl.load(cosines + pos[:, None] * (d_model // 2) + pair[None, :])
        sine = tl.load(sines + pos[:, None] * (d_model // 2) + pair[None, :])
        out = qkv + m[:, None] * (3 * d_model) + d[None, :]
        if queries:
            y = projected(n, of_queries, parameters + at_bias + d, cosine, sine)
            tl.store(out, y.to(dtype), mask=present[:, None])
        y = projected(n, of_keys, parameters + at_bias + d_model + d, cosine, sine)
        tl.store(out + d_model, y.to(dtype), mask=present[:, None])
        y = projected(n, of_values, parameters + at_bias + 2 * d_model + d, cosine, sine)
        tl.store(out + 2 * d_model, y.to(dtype), mask=present[:, None])


@triton.jit
@no_type_check
def attention_tile(
    rows,
    step,
    run,
    n_sums,
    n_batches,
    batch,
    n_pos,
    n_read,
    first_query,
    from_embedding: tl.constexpr,
    sums_at_once: tl.constexpr,
    key_tile: tl.constexpr,
    query_tile: tl.constexpr,
):
    """Return the keys and the queries of a program's sums.

    For each of both kinds: the place of the sum in the batch, True if there is such a sum, the
    position, and the token (in layer 0 the (token, position) pair). The last result is the place
    of a query's position among those that have queries.
    """
    first = tl.program_id(1) * sums_at_once
    key = tl.arange(0, key_tile)
    key_sum = first + key // n_pos
    key_pos = key % n_pos
    has_key = (key // n_pos < sums_at_once) & (key_sum < batch)
    query = tl.arange(0, query_tile)
    query_sum = first + query // n_read
    read = query % n_read
    has_query = (query // n_read < sums_at_once) & (query_sum < batch)
    query_pos = read + first_query
    if from_embedding:
        start = (tl.load(step) % n_batches) * batch
        rows += run * n_pos * n_sums
        key_at = tl.minimum(start + key_sum, n_sums - 1)
        key_token = tl.load(rows + key_pos * n_sums + key_at, mask=has_key, other=0).to(tl.int32)
        query_at = tl.minimum(start + query_sum, n_sums - 1)
        query_token = tl.load(rows + query_pos * n_sums + query_at, mask=has_query, other=0)
        query_token = query_token.to(tl.int32)
    else:
        key_token = key_pos * batch + key_sum
        query_token = query_pos * batch + query_sum
    return (
        key_sum,
        has_key,
        key_pos,
        key_token,
        query_sum,
        has_query,
        query_pos,
        query_token,
        read,
    )


@triton.jit
@no_type_check
def attention_pattern(q, k, same, scale):
    """Return the attention probabilities of a tile, 0 outside a query's own sum."""
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    score = tl.where(same, score, -1e30)
    power = tl.where(same, tl.exp(score - tl.max(score, 1)[:, None]), 0.0)
    return power / tl.maximum(tl.sum(power, 1), 1e-30)[:, None]


@triton.jit(do_not_specialize=["n_sums", "n_batches", "layer", "first_query", "n_read", "n_pos"])
@no_type_check
def attention_forward(
    rows,
    step,
    qkv,
    seeds,
    z,
    n_sums,
    n_batches,
    batch,
    n_pos,
    n_read,
    first_query,
    n_tokens,
    layer,
    from_embedding: tl.constexpr,
    causal: tl.constexpr,
    dropout: tl.constexpr,
    threshold: tl.constexpr,
    mask_scale: tl.constexpr,
    d_model: tl.constexpr,
    heads: tl.constexpr,
    sums_at_once: tl.constexpr,
    key_tile: tl.constexpr,
    query_tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Write a head's output z at the queries' positions.

    A tile has several sums; a query sees only keys of its own.
    """
    run = tl.program_id(0).to(tl.int64)
    head = tl.program_id(2)
    d_head: tl.constexpr = d_model // heads
    h = head * d_head + tl.arange(0, d_head)
    (key_sum, has_key, key_pos, key_token, query_sum, has_query, query_pos, query_token, read) = (
        attention_tile(
            rows,
            step,
            run,
            n_sums,
            n_batches,
            batch,
            n_pos,
            n_read,
            first_query,
            from_embedding,
            sums_at_once,
            key_tile,
            query_tile,
        )
    )
    same = (query_sum[:, None] == key_sum[None, :]) & has_query[:, None] & has_key[None, :]
    if causal:
        same = same & (key_pos[None, :] <= query_pos[:, None])
    m = read * batch + query_sum  # the query's place in what is written
    qkv += run * n_tokens * 3 * d_model
    z += run * n_read * batch * d_model
    key_at = qkv + key_token[:, None] * (3 * d_model) + h[None, :]
    query_at = qkv + query_token[:, None] * (3 * d_model) + h[None, :]
    q = tl.load(query_at, mask=has_query[:, None], other=0.0)
    k = tl.load(key_at + d_model, mask=has_key[:, None], other=0.0)
    v = tl.load(key_at + 2 * d_model, mask=has_key[:, None], other=0.0)
    pattern = attention_pattern(q, k, same, 1 / tl.sqrt(d_head + 0.0))
    if dropout:
        first, second = mask_key(seeds, step, run, 4 * layer + ON_PATTERN)
        index = (m * heads + head)[:, None] * n_pos + key_pos[None, :]
        pattern = tl.where(is_kept(index, first, second, threshold), pattern * mask_scale, 0.0)
    out = tl.dot(pattern.to(dtype), v, input_precision="ieee").to(dtype)
    tl.store(z + m[:, None] * d_model + h[None, :], out, mask=has_query[:, None])


@triton.jit
@no_type_check
def incoming(
    rows,
    start,
    x,
    token,
    parameters,
    at_embed,
    m,
    present,
    d,
    n_sums,
    batch,
    first_query,
    from_embedding: tl.constexpr,
    d_model: tl.constexpr,
):
    """Return the stream that enters a block, at the queries m of the batch."""
    if from_embedding:
        at = tl.minimum(start + m % batch, n_sums - 1)
        pos = m // batch + first_query
        row = tl.load(rows + pos * n_sums + at, mask=present, other=0).to(tl.int32)
        return embedded(parameters, row, token, at_embed, d, d_model, present)
    at_token = (m + first_query * batch)[:, None] * d_model + d[None, :]
    return tl.load(x + at_token, mask=present[:, None], other=0.0)


@triton.jit(do_not_specialize=["n_sums", "n_batches", "layer", "first_query", "n_pos"])
@no_type_check
def block_forward(
    rows,
    step,
    x,
    token,
    z,
    parameters,
    rounded,
    seeds,
    mid,
    resid,
    n_parameters,
    at_embed,
    at_o,
    at_o_bias,
    at_norm,
    at_up,
    at_up_bias,
    at_down,
    at_down_bias,
    n_sums,
    n_batches,
    batch,
    n_pos,
    first_query,
    n_tokens,
    layer,
    from_embedding: tl.constexpr,
    dropout: tl.constexpr,
    threshold: tl.constexpr,
    mask_scale: tl.constexpr,
    d_model: tl.constexpr,
    d_ff: tl.constexpr,
    tile: tl.constexpr,
    f_tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Write the stream after the attention, and after the MLP, from the heads' outputs z."""
    run = tl.program_id(0).to(tl.int64)
    parameters += run * n_parameters
    rounded += run * n_parameters
    rows += run * n_pos * n_sums
    x += run * (n_tokens + first_query * batch) * d_model
    z += run * n_tokens * d_model
    mid += run * n_tokens * d_model
    resid += run * n_tokens * d_model
    d = tl.arange(0, d_model)
    f = tl.arange(0, f_tile)
    resident: tl.constexpr = d_ff == f_tile  # the MLP's weights are loaded once
    if resident:
        up = tl.load(rounded + at_up + f[None, :] * d_model + d[:, None])  # (d_model, f)
        up_bias = tl.load(parameters + at_up_bias + f)
        down = tl.load(rounded + at_down + d[None, :] * d_ff + f[:, None])  # (f, d_model)
    o = tl.load(rounded + at_o + d[None, :] * d_model + d[:, None])  # (d_in, d_out)
    o_bias = tl.load(parameters + at_o_bias + d)
    scale = tl.load(parameters + at_norm + d)
    shift = tl.load(parameters + at_norm + d_model + d)
    down_bias = tl.load(parameters + at_down_bias + d)
    start = (tl.load(step) % n_batches) * batch
    if dropout:
        on_attention, on_attention_2 = mask_key(seeds, step, run, 4 * layer + ON_ATTENTION)
        on_hidden, on_hidden_2 = mask_key(seeds, step, run, 4 * layer + ON_HIDDEN)
        on_mlp, on_mlp_2 = mask_key(seeds, step, run, 4 * layer + ON_MLP)
    stride = tl.num_programs(1) * tile
    for tile_start in range(tl.program_id(1) * tile, n_tokens, stride):
        m = tile_start + tl.arange(0, tile)
        present = m < n_tokens
        at_token = m[:, None] * d_model + d[None, :]
        attention = tl.load(z + at_token, mask=present[:, None], other=0.0)
        attention = tl.dot(attention, o, input_precision="ieee") + o_bias[None, :]
        if dropout:
            keeps_attention = is_kept(at_token, on_attention, on_attention_2, threshold)
            attention = tl.where(keeps_attention, attention * mask_scale, 0.0)
        stream = attention + incoming(
            rows,
            start,
            x,
            token,
            parameters,
            at_embed,
            m,
            present,
            d,
            n_sums,
            batch,
            first_query,
            from_embedding,
            d_model,
        )
        tl.store(mid + at_token, stream, mask=present[:, None])
        unit, _ = normed(stream)
        n = (unit * scale[None, :] + shift[None, :]).to(dtype)
        out = tl.zeros((tile, d_model), tl.float32)
        for f_start in range(0, d_ff, f_tile):
            if not resident:
                up = tl.load(rounded + at_up + (f_start + f)[None, :] * d_model + d[:, None])
                up_bias = tl.load(parameters + at_up_bias + f_start + f)
                down = tl.load(rounded + at_down + d[None, :] * d_ff + (f_start + f)[:, None])
            hidden = tl.dot(n, up, input_precision="ieee") + up_bias[None, :]
            hidden = tl.maximum(hidden, 0.0)
            if dropout:
                index = m[:, None] * d_ff + (f_start + f)[None, :]
                keeps_hidden = is_kept(index, on_hidden, on_hidden_2, threshold)
                hidden = tl.where(keeps_hidden, hidden * mask_scale, 0.0)
            out += tl.dot(hidden.to(dtype), down, input_precision="ieee")
        out += down_bias[None, :]
        if dropout:
            keeps_out = is_kept(at_token, on_mlp, on_mlp_2, threshold)
            out = tl.where(keeps_out, out * mask_scale, 0.0)
        tl.store(resid + at_token, stream + out, mask=present[:, None])


@triton.jit(do_not_specialize=["n_sums", "n_batches", "n_slots"])
@no_type_check
def loss_and_gradient(
    resid,
    targets,
    parameters,
    rounded,
    step,
    totals,
    partial,
    gradient,
    n_parameters,
    at_norm,
    at_weight,
    at_bias,
    n_sums,
    n_batches,
    batch,
    n_slots,
    train: tl.constexpr,
    n_read: tl.constexpr,
    vocab: tl.constexpr,
    d_model: tl.constexpr,
    tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Add a batch's mean loss and accuracies to `totals`; with `train`, write gradients too.

    `totals` is `[run, slot, 2 + read]`: the loss, the accuracy by position, and exact match. The
    means are over the sums of this batch, the last of which may be short.
    """
    run = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1)
    parameters += run * n_parameters
    rounded += run * n_parameters
    partial += (run * n_slots + slot) * n_parameters
    totals += (run * n_slots + slot) * (2 + n_read)
    resid += run * n_read * batch * d_model
    gradient += run * n_read * batch * d_model
    targets += run * n_read * n_sums
    n_columns: tl.constexpr = 16  # the vocabulary, padded
    d = tl.arange(0, d_model)
    c = tl.arange(0, n_columns)
    real = c < vocab
    start = (tl.load(step) % n_batches) * batch
    count = tl.minimum(batch, n_sums - start)
    # The totals are divided by the number of batches: in training, that gives the mean over
    # batches, and in a test, that over all sums.
    share = count + 0.0 if train else (n_sums + 0.0) / n_batches
    scale = tl.load(parameters + at_norm + d)
    shift = tl.load(parameters + at_norm + d_model + d)
    bias = tl.load(parameters + at_bias + c, mask=real, other=0.0)
    weight = tl.load(
        rounded + at_weight + c[:, None] * d_model + d[None, :], mask=real[:, None], other=0.0
    )
    weight_gradient = tl.zeros((n_columns, d_model), tl.float32)
    bias_gradient = tl.zeros((n_columns,), tl.float32)
    scale_gradient = tl.zeros((d_model,), tl.float32)
    shift_gradient = tl.zeros((d_model,), tl.float32)
    loss = tl.zeros((tile,), tl.float32)
    whole = 0.0
    accuracy = tl.zeros((16,), tl.float32)
    for tile_start in range(slot * tile, batch, n_slots * tile):
        e = tile_start + tl.arange(0, tile)
        present = e < count
        all_correct = present
        for read in range(n_read):
            at_token = (read * batch + e)[:, None] * d_model + d[None, :]
            x = tl.load(resid + at_token, mask=(e < batch)[:, None], other=0.0)
            unit, rstd = normed(x)
            n = (unit * scale[None, :] + shift[None, :]).to(dtype)
            logits = tl.dot(n, tl.trans(weight), input_precision="ieee") + bias[None, :]
            logits = tl.where(real[None, :], logits, -1e30)
            target_at = read * n_sums + start + e
            target = tl.load(targets + target_at, mask=present, other=0).to(tl.int32)
            is_target = c[None, :] == target[:, None]
            highest = tl.max(logits, 1)
            power = tl.exp(logits - highest[:, None])
            total = tl.sum(power, 1)
            of_target = tl.sum(tl.where(is_target, logits, 0.0), 1)
            loss += tl.where(present, highest + tl.log(total) - of_target, 0.0)
            correct = present & (tl.argmax(logits, 1) == target)
            all_correct = all_correct & correct
            n_correct = tl.sum(correct.to(tl.float32), 0)
            accuracy += tl.where(tl.arange(0, 16) == read, n_correct, 0.0)
            if train:
                slope = (power / total[:, None] - is_target.to(tl.float32)) / (count * n_read)
                slope = tl.where(present[:, None] & real[None, :], slope, 0.0)
                bias_gradient += tl.sum(slope, 0)
                slope = slope.to(dtype)
                weight_gradient += tl.dot(tl.trans(slope), n, input_precision="ieee")
                along = tl.dot(slope, weight, input_precision="ieee")
                scale_gradient += tl.sum(along * unit, 0)
                shift_gradient += tl.sum(along, 0)
                along = norm_gradient(along * scale[None, :], unit, rstd)
                tl.store(gradient + at_token, along, mask=(e < batch)[:, None])
        whole += tl.sum(all_correct.to(tl.float32), 0)
    column = tl.arange(0, 16)
    new = tl.where(column < n_read, accuracy, 0.0)
    totals_at = totals + 1 + column
    old = tl.load(totals_at, mask=column < n_read, other=0.0)
    tl.store(totals_at, old + new / share, mask=column < n_read)
    tl.store(totals, tl.load(totals) + tl.sum(loss, 0) / (share * n_read))
    tl.store(totals + 1 + n_read, tl.load(totals + 1 + n_read) + whole / share)
    if train:
        weight_at = partial + at_weight + c[:, None] * d_model + d[None, :]
        tl.store(weight_at, weight_gradient, mask=real[:, None])
        tl.store(partial + at_bias + c, bias_gradient, mask=real)
        tl.store(partial + at_norm + d, scale_gradient)
        tl.store(partial + at_norm + d_model + d, shift_gradient)


# ---- gradients


@triton.jit(do_not_specialize=["layer", "n_norms"])
@no_type_check
def block_backward(
    mid,
    parameters,
    rounded,
    seeds,
    step,
    gradient,
    mid_gradient,
    normed_mid,
    hidden_out,
    hidden_gradient,
    mlp_gradient,
    attention_gradient,
    z_gradient,
    norms,
    n_parameters,
    at_o,
    at_norm,
    at_up,
    at_up_bias,
    at_down,
    n_tokens,
    n_norms,
    layer,
    threshold: tl.constexpr,
    mask_scale: tl.constexpr,
    d_model: tl.constexpr,
    d_ff: tl.constexpr,
    tile: tl.constexpr,
    f_tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Write the gradients of the stream before the MLP, and of the heads' outputs.

    Of the weights' gradients it writes the factors.
    """
    run = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1)
    parameters += run * n_parameters
    rounded += run * n_parameters
    d = tl.arange(0, d_model)
    scale = tl.load(parameters + at_norm + d)
    shift = tl.load(parameters + at_norm + d_model + d)
    mid += run * n_tokens * d_model
    gradient += run * n_tokens * d_model
    mid_gradient += run * n_tokens * d_model
    normed_mid += run * n_tokens * d_model
    mlp_gradient += run * n_tokens * d_model
    attention_gradient += run * n_tokens * d_model
    z_gradient += run * n_tokens * d_model
    hidden_out += run * n_tokens * d_ff
    hidden_gradient += run * n_tokens * d_ff
    on_hidden, on_hidden_2 = mask_key(seeds, step, run, 4 * layer + ON_HIDDEN)
    on_mlp, on_mlp_2 = mask_key(seeds, step, run, 4 * layer + ON_MLP)
    on_attention, on_attention_2 = mask_key(seeds, step, run, 4 * layer + ON_ATTENTION)
    scale_gradient = tl.zeros((d_model,), tl.float32)
    shift_gradient = tl.zeros((d_model,), tl.float32)
    for tile_start in range(slot * tile, n_tokens, tl.num_programs(1) * tile):
        m = tile_start + tl.arange(0, tile)
        present = (m < n_tokens)[:, None]
        at_token = m[:, None] * d_model + d[None, :]
        x = tl.load(mid + at_token, mask=present, other=0.0)
        slope = tl.load(gradient + at_token, mask=present, other=0.0)
        unit, rstd = normed(x)
        n = (unit * scale[None, :] + shift[None, :]).to(dtype)
        keeps_out = is_kept(at_token, on_mlp, on_mlp_2, threshold)
        out = tl.where(keeps_out, slope * mask_scale, 0.0).to(dtype)
        tl.store(normed_mid + at_token, n, mask=present)
        tl.store(mlp_gradient + at_token, out, mask=present)
        along = tl.zeros((tile, d_model), tl.float32)
        for start in range(0, d_ff, f_tile):
            f = start + tl.arange(0, f_tile)
            up = tl.load(rounded + at_up + f[:, None] * d_model + d[None, :])  # (f, d_model)
            up_bias = tl.load(parameters + at_up_bias + f)
            hidden = tl.dot(n, tl.trans(up), input_precision="ieee") + up_bias[None, :]
            index = m[:, None] * d_ff + f[None, :]
            active = (hidden > 0) & is_kept(index, on_hidden, on_hidden_2, threshold)
            dropped = tl.where(active, hidden * mask_scale, 0.0).to(dtype)
            tl.store(hidden_out + index, dropped, mask=present)
            down = tl.load(rounded + at_down + d[:, None] * d_ff + f[None, :])  # (d_model, f)
            to_hidden = tl.dot(out, down, input_precision="ieee")
            to_hidden = tl.where(active, to_hidden * mask_scale, 0.0).to(dtype)
            tl.store(hidden_gradient + index, to_hidden, mask=present)
            along += tl.dot(to_hidden, up, input_precision="ieee")
        scale_gradient += tl.sum(along * unit, 0)
        shift_gradient += tl.sum(along, 0)
        slope += norm_gradient(along * scale[None, :], unit, rstd)
        tl.store(mid_gradient + at_token, slope, mask=present)
        keeps_attention = is_kept(at_token, on_attention, on_attention_2, threshold)
        attention = tl.where(keeps_attention, slope * mask_scale, 0.0).to(dtype)
        tl.store(attention_gradient + at_token, attention, mask=present)
        o = tl.load(rounded + at_o + d[:, None] * d_model + d[None, :])  # (d_out, d_in)
        back = tl.dot(attention, o, input_precision="ieee").to(dtype)
        tl.store(z_gradient + at_token, back, mask=present)
    norms += (run * n_norms * tl.num_programs(1) + slot) * 2 * d_model
    tl.store(norms + d, scale_gradient)
    tl.store(norms + d_model + d, shift_gradient)


@triton.jit(do_not_specialize=["n_sums", "n_batches", "layer", "first_query", "n_read", "n_pos"])
@no_type_check
def attention_backward(
    rows,
    step,
    qkv,
    seeds,
    z_gradient,
    qkv_gradient,
    n_sums,
    n_batches,
    batch,
    n_pos,
    n_read,
    first_query,
    n_tokens,
    layer,
    from_embedding: tl.constexpr,
    causal: tl.constexpr,
    threshold: tl.constexpr,
    mask_scale: tl.constexpr,
    d_model: tl.constexpr,
    heads: tl.constexpr,
    sums_at_once: tl.constexpr,
    key_tile: tl.constexpr,
    query_tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Write the gradients of a head's rotated queries, keys and values.

    In layer 0 too they are of the batch's own tokens, not of the (token, position) pairs.
    """
    run = tl.program_id(0).to(tl.int64)
    head = tl.program_id(2)
    d_head: tl.constexpr = d_model // heads
    h = head * d_head + tl.arange(0, d_head)
    (key_sum, has_key, key_pos, key_token, query_sum, has_query, query_pos, query_token, read) = (
        attention_tile(
            rows,
            step,
            run,
            n_sums,
            n_batches,
            batch,
            n_pos,
            n_read,
            first_query,
            from_embedding,
            sums_at_once,
            key_tile,
            query_tile,
        )
    )
    same = (query_sum[:, None] == key_sum[None, :]) & has_query[:, None] & has_key[None, :]
    if causal:
        same = same & (key_pos[None, :] <= query_pos[:, None])
    m = read * batch + query_sum
    qkv += run * n_tokens * 3 * d_model
    z_gradient += run * n_read * batch * d_model
    key_at = qkv + key_token[:, None] * (3 * d_model) + h[None, :]
    query_at = qkv + query_token[:, None] * (3 * d_model) + h[None, :]
    q = tl.load(query_at, mask=has_query[:, None], other=0.0)
    k = tl.load(key_at + d_model, mask=has_key[:, None], other=0.0)
    v = tl.load(key_at + 2 * d_model, mask=has_key[:, None], other=0.0)
    z = tl.load(z_gradient + m[:, None] * d_model + h[None, :], mask=has_query[:, None], other=0.0)
    scale = 1 / tl.sqrt(d_head + 0.0)
    pattern = attention_pattern(q, k, same, scale)
    first, second = mask_key(seeds, step, run, 4 * layer + ON_PATTERN)
    index = (m * heads + head)[:, None] * n_pos + key_pos[None, :]
    keeps = is_kept(index, first, second, threshold)
    dropped = tl.where(keeps, pattern * mask_scale, 0.0).to(dtype)
    qkv_gradient += run * n_pos * batch * 3 * d_model
    to_key = qkv_gradient + (key_pos * batch + key_sum)[:, None] * (3 * d_model) + h[None, :]
    to_query = (query_pos * batch + query_sum)[:, None] * (3 * d_model) + h[None, :]
    v_gradient = tl.dot(tl.trans(dropped), z, input_precision="ieee").to(dtype)
    tl.store(to_key + 2 * d_model, v_gradient, mask=has_key[:, None])
    slope = tl.dot(z, tl.trans(v), input_precision="ieee")
    slope = tl.where(keeps, slope * mask_scale, 0.0)
    slope = pattern * (slope - tl.sum(slope * pattern, 1)[:, None]) * scale
    slope = slope.to(dtype)
    k_gradient = tl.dot(tl.trans(slope), q, input_precision="ieee").to(dtype)
    tl.store(to_key + d_model, k_gradient, mask=has_key[:, None])
    q_gradient = tl.dot(slope, k, input_precision="ieee").to(dtype)
    tl.store(qkv_gradient + to_query, q_gradient, mask=has_query[:, None])


@triton.jit(do_not_specialize=["n_sums", "n_batches", "n_pos", "n_pairs"])
@no_type_check
def sum_over_tokens(
    rows,
    step,
    qkv_gradient,
    mid_gradient,
    first_row,
    pair_gradient,
    n_sums,
    n_batches,
    batch,
    n_pos,
    n_pairs,
    d_model: tl.constexpr,
    tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Add up layer 0's gradients over the tokens of each (token, position) pair.

    The results are `[run, pair, 4 * d_model]`: those of queries, keys, values and stream.
    """
    run = tl.program_id(0).to(tl.int64)
    pos = tl.program_id(1)
    block = tl.program_id(2)
    d = tl.arange(0, d_model)
    digit = tl.arange(0, 16)
    rows += (run * n_pos + pos) * n_sums
    qkv_gradient += run * n_pos * batch * 3 * d_model
    mid_gradient += run * n_pos * batch * d_model
    pair_gradient += run * n_pairs * 4 * d_model
    start = (tl.load(step) % n_batches) * batch
    first = tl.load(first_row + pos)
    last = tl.load(first_row + pos + 1)
    total = tl.zeros((16, d_model), tl.float32)
    for tile_start in range(0, batch, tile):
        e = tile_start + tl.arange(0, tile)
        present = e < batch
        sum_at = tl.minimum(start + e, n_sums - 1)
        row = tl.load(rows + sum_at, mask=present, other=0)
        is_digit = (digit[:, None] == row.to(tl.int32)[None, :] - first) & present[None, :]
        at_token = pos * batch + e
        if block < 3:
            from_qkv = qkv_gradient + at_token[:, None] * (3 * d_model) + block * d_model
            x = tl.load(from_qkv + d[None, :], mask=present[:, None], other=0.0)
        else:
            x = tl.load(
                mid_gradient + at_token[:, None] * d_model + d[None, :],
                mask=present[:, None],
                other=0.0,
            ).to(dtype)
        total += tl.dot(is_digit.to(dtype), x, input_precision="ieee")
    out_at = (first + digit)[:, None] * (4 * d_model) + block * d_model
    tl.store(pair_gradient + out_at + d[None, :], total, mask=(first + digit < last)[:, None])


@triton.jit(do_not_specialize=["first_query", "n_norms"])
@no_type_check
def queries_keys_values_backward(
    x,
    token,
    position,
    parameters,
    rounded,
    cosines,
    sines,
    qkv_gradient,
    mid_gradient,
    pair_gradient,
    gradient,
    normed_x,
    norms,
    n_parameters,
    at_embed,
    at_norm,
    at_weight,
    n_tokens,
    batch,
    first_query,
    n_norms,
    from_embedding: tl.constexpr,
    d_model: tl.constexpr,
    tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Write the gradient of the stream that enters a layer, and factors of weights' gradients.

    The gradients of queries, keys and values are turned back in their place.
    """
    run = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1)
    parameters += run * n_parameters
    rounded += run * n_parameters
    d = tl.arange(0, d_model)
    pair = tl.arange(0, d_model // 2)
    scale = tl.load(parameters + at_norm + d)
    shift = tl.load(parameters + at_norm + d_model + d)
    scale_gradient = tl.zeros((d_model,), tl.float32)
    shift_gradient = tl.zeros((d_model,), tl.float32)
    n_queries = n_tokens - first_query * batch
    x += run * n_tokens * d_model
    gradient += run * n_tokens * d_model
    normed_x += run * n_tokens * d_model
    qkv_gradient += run * n_tokens * 3 * d_model
    pair_gradient += run * n_tokens * 4 * d_model
    mid_gradient += run * n_queries * d_model
    weight_at = rounded + at_weight + d[:, None] * d_model + d[None, :]  # (d_out, d_in)
    for tile_start in range(slot * tile, n_tokens, tl.num_programs(1) * tile):
        m = tile_start + tl.arange(0, tile)
        present = m < n_tokens
        at_token = m[:, None] * d_model + d[None, :]
        if from_embedding:
            stream = embedded(parameters, m, token, at_embed, d, d_model, present)
            pos = tl.load(position + m, mask=present, other=0)
            first_part = 0
            pair_at = m[:, None] * (4 * d_model) + d[None, :]
            slope = tl.load(pair_gradient + pair_at + 3 * d_model, mask=present[:, None], other=0.0)
        else:
            stream = tl.load(x + at_token, mask=present[:, None], other=0.0)
            pos = m // batch
            first_part = tl.where(tile_start // batch >= first_query, 0, 1)
            at_query = (m - first_query * batch)[:, None]
            slope = tl.load(
                mid_gradient + at_query * d_model + d[None, :],
                mask=present[:, None] & (m >= first_query * batch)[:, None],
                other=0.0,
            )
        unit, rstd = normed(stream)
        n = (unit * scale[None, :] + shift[None, :]).to(dtype)
        tl.store(normed_x + at_token, n, mask=present[:, None])
        cosine = tl.load(cosines + pos[:, None] * (d_model // 2) + pair[None, :])
        sine = tl.load(sines + pos[:, None] * (d_model // 2) + pair[None, :])
        to = qkv_gradient + m[:, None] * (3 * d_model) + d[None, :]
        along = tl.zeros((tile, d_model), tl.float32)
        source = pair_gradient + pair_at if from_embedding else to
        for part in range(first_part, 3):
            y = tl.load(source + part * d_model, mask=present[:, None], other=0.0).to(tl.float32)
            y = rotated(y, cosine, -sine).to(dtype)
            tl.store(to + part * d_model, y, mask=present[:, None])
            weight = tl.load(weight_at + part * d_model * d_model)
            along = tl.dot(y, weight, along, input_precision="ieee")
        scale_gradient += tl.sum(along * unit, 0)
        shift_gradient += tl.sum(along, 0)
        slope += norm_gradient(along * scale[None, :], unit, rstd)
        tl.store(gradient + at_token, slope, mask=present[:, None])
    norms += (run * n_norms * tl.num_programs(1) + slot) * 2 * d_model
    tl.store(norms + d, scale_gradient)
    tl.store(norms + d_model + d, shift_gradient)


@triton.jit(do_not_specialize=["n_norms", "n_slots", "n_programs"])
@no_type_check
def norm_gradients(
    norms,
    partial,
    n_parameters,
    at_norm,
    block_stride,
    n_norms,
    n_slots,
    n_programs,
    d_model: tl.constexpr,
):
    """Add up the gradients of a block's norm, which serves its attention and its MLP."""
    run = tl.program_id(0).to(tl.int64)
    layer = tl.program_id(1)
    column = tl.arange(0, 2 * d_model)
    total = tl.zeros((2 * d_model,), tl.float32)
    norms += (run * n_norms + 2 * layer) * n_programs * 2 * d_model
    for i in range(2 * n_programs):
        total += tl.load(norms + i * 2 * d_model + column)
    to = partial + run * n_slots * n_parameters + at_norm + layer * block_stride
    tl.store(to + column, total)


@triton.jit(do_not_specialize=["first_token", "n_slots"])
@no_type_check
def weight_gradient(
    out_gradient,
    inputs,
    partial,
    n_parameters,
    at_weight,
    at_bias,
    n_tokens,
    first_token,
    n_in,
    out_stride,
    n_slots,
    out_tile: tl.constexpr,
    in_tile: tl.constexpr,
    tile: tl.constexpr,
):
    """Write a linear map's gradients, `out_gradient.T @ inputs` and the sum of `out_gradient`.

    Both are `[run, token, …]`; tokens before `first_token` are left out.
    """
    run = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1)
    n_in_tiles = n_in // in_tile
    out = (tl.program_id(2) // n_in_tiles) * out_tile + tl.arange(0, out_tile)
    into = (tl.program_id(2) % n_in_tiles) * in_tile + tl.arange(0, in_tile)
    partial += (run * n_slots + slot) * n_parameters
    out_gradient += run * n_tokens * out_stride
    inputs += run * n_tokens * n_in
    total = tl.zeros((out_tile, in_tile), tl.float32)
    of_bias = tl.zeros((out_tile,), tl.float32)
    chunk = tl.cdiv(tl.cdiv(n_tokens - first_token, n_slots), tile) * tile
    begin = first_token + slot * chunk
    for tile_start in range(begin, tl.minimum(begin + chunk, n_tokens), tile):
        m = tile_start + tl.arange(0, tile)
        present = (m < n_tokens)[:, None]
        at_out = m[:, None] * out_stride + out[None, :]
        slope = tl.load(out_gradient + at_out, mask=present, other=0.0)
        at_in = m[:, None] * n_in + into[None, :]
        x = tl.load(inputs + at_in, mask=present, other=0.0)
        total += tl.dot(tl.trans(slope), x, input_precision="ieee")
        of_bias += tl.sum(slope.to(tl.float32), 0)
    tl.store(partial + at_weight + out[:, None] * n_in + into[None, :], total)
    if tl.program_id(2) % n_in_tiles == 0:
        tl.store(partial + at_bias + out, of_bias)


@triton.jit(do_not_specialize=["n_pairs", "n_slots"])
@no_type_check
def embedding_gradient(
    gradient,
    token,
    partial,
    n_parameters,
    at_embed,
    n_pairs,
    n_slots,
    d_model: tl.constexpr,
):
    """Add up the gradient of the stream that enters layer 0 over the pairs of each token."""
    run = tl.program_id(0).to(tl.int64)
    which = tl.program_id(1)
    d = tl.arange(0, d_model)
    total = tl.zeros((d_model,), tl.float32)
    for row in range(n_pairs):
        x = tl.load(gradient + (run * n_pairs + row) * d_model + d)
        total += tl.where(tl.load(token + row) == which, x, 0.0)
    total = total * tl.sqrt(d_model + 0.0)
    tl.store(partial + run * n_slots * n_parameters + at_embed + which * d_model + d, total)


@triton.jit(do_not_specialize=["n_slots", "warmup"])
@no_type_check
def adam_w(
    values,
    rounded,
    exp_avg,
    exp_avg_sq,
    partial,
    step,
    seen,
    n_parameters,
    n_slots,
    rate,
    warmup,
    decay,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    epsilon: tl.constexpr,
    tile: tl.constexpr,
    dtype: tl.constexpr,
):
    """Take a step of AdamW, and round the new parameters for the next matrix products.

    `step` counts the steps of this training, `seen` those that came before it, in finetuning.
    """
    run = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * tile + tl.arange(0, tile)
    present = i < n_parameters
    gradient = tl.zeros((tile,), tl.float32)
    for slot in range(n_slots):
        at = (run * n_slots + slot) * n_parameters + i
        gradient += tl.load(partial + at, mask=present, other=0.0)
    at = run * n_parameters + i
    number = (tl.load(step) + 1).to(tl.float32)
    total = number + tl.load(seen).to(tl.float32)
    now = rate * tl.minimum(1.0, number / tl.maximum(warmup, 1))
    mean = tl.load(exp_avg + at, mask=present, other=0.0) * beta1 + gradient * (1 - beta1)
    square = tl.load(exp_avg_sq + at, mask=present, other=0.0) * beta2
    square += gradient * gradient * (1 - beta2)
    correction1 = 1 - tl.exp(total * tl.log(beta1 + 0.0))
    correction2 = 1 - tl.exp(total * tl.log(beta2 + 0.0))
    value = tl.load(values + at, mask=present, other=0.0) * (1 - now * decay)
    spread = tl.sqrt(square) / tl.sqrt(correction2) + epsilon
    value -= (now / correction1) * mean / spread
    tl.store(exp_avg + at, mean, mask=present)
    tl.store(exp_avg_sq + at, square, mask=present)
    tl.store(values + at, value, mask=present)
    tl.store(rounded + at, value.to(dtype), mask=present)
