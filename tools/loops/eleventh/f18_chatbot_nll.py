"""After pytorch/tutorials#663.

Story: the seq2seq chatbot tutorial, with the hand-made masked loss replaced by
nn.NLLLoss with an ignore_index; the model does not converge any more.
"""

import torch
import torch.nn.functional as F
from torch import nn

PAD_token, SOS_token, EOS_token = 0, 1, 2
LAST = None


class EncoderRNN(nn.Module):
    def __init__(self, hidden_size, embedding):
        super().__init__()
        self.embedding = embedding
        self.gru = nn.GRU(hidden_size, hidden_size, bidirectional=True)
        self.hidden_size = hidden_size

    def forward(self, input_seq, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(input_seq), lengths, enforce_sorted=False)
        outputs, hidden = self.gru(packed)
        outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs)
        outputs = outputs[:, :, : self.hidden_size] + outputs[:, :, self.hidden_size :]
        return outputs, hidden


class LuongAttnDecoderRNN(nn.Module):
    def __init__(self, embedding, hidden_size, output_size):
        super().__init__()
        self.embedding = embedding
        self.gru = nn.GRU(hidden_size, hidden_size)
        self.concat = nn.Linear(hidden_size * 2, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, input_step, last_hidden, encoder_outputs):
        rnn_output, hidden = self.gru(self.embedding(input_step), last_hidden)
        attn = F.softmax((rnn_output * encoder_outputs).sum(2).t(), dim=1).unsqueeze(1)
        context = attn.bmm(encoder_outputs.transpose(0, 1)).squeeze(1)
        concat_output = torch.tanh(self.concat(torch.cat((rnn_output.squeeze(0), context), 1)))
        return F.softmax(self.out(concat_output), dim=1), hidden


class Seq2Seq(nn.Module):
    def __init__(self, voc_size, hidden_size):
        super().__init__()
        embedding = nn.Embedding(voc_size, hidden_size)
        self.encoder = EncoderRNN(hidden_size, embedding)
        self.decoder = LuongAttnDecoderRNN(embedding, hidden_size, voc_size)


def make_pairs(n, voc_size, max_len=5):
    lengths = torch.randint(2, max_len + 1, (n,))
    src = torch.zeros(max_len, n, dtype=torch.long)
    tgt = torch.zeros(max_len + 1, n, dtype=torch.long)
    for i, length in enumerate(lengths.tolist()):
        words = torch.randint(3, voc_size, (length,))
        src[:length, i] = words
        tgt[:length, i] = 3 + (words - 3 + 7) % (voc_size - 3)
        tgt[length, i] = EOS_token
    return src, lengths, tgt


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    voc_size, hidden_size, batch_size = 60, 32, 24
    model = Seq2Seq(voc_size, hidden_size)
    encoder_optimizer = torch.optim.Adam(model.encoder.parameters(), lr=5e-3)
    decoder_optimizer = torch.optim.Adam(model.decoder.parameters(), lr=5e-3)
    criterion = nn.NLLLoss(ignore_index=PAD_token)
    tick.model(model)
    tick.optimizer(encoder_optimizer)
    tick.optimizer(decoder_optimizer)
    losses = []
    for iteration in range(150):
        src, lengths, tgt = make_pairs(batch_size, voc_size)
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        encoder_outputs, encoder_hidden = model.encoder(src, lengths)
        decoder_input = torch.full((1, batch_size), SOS_token)
        decoder_hidden = encoder_hidden[:1]
        total_loss, hits, count = 0.0, 0, 0
        for t in range(int(lengths.max()) + 1):
            decoder_output, decoder_hidden = model.decoder(decoder_input, decoder_hidden, encoder_outputs)
            decoder_input = tgt[t].view(1, -1)
            if not (tgt[t] != PAD_token).any():
                break
            scores = decoder_output.clamp_min(1e-9).log() if mended else decoder_output
            total_loss = total_loss + criterion(scores, tgt[t])
            real = tgt[t] > EOS_token
            hits += (decoder_output.argmax(1) == tgt[t])[real].sum().item()
            count += int(real.sum())
        total_loss.backward()
        nn.utils.clip_grad_norm_(model.encoder.parameters(), 50.0)
        nn.utils.clip_grad_norm_(model.decoder.parameters(), 50.0)
        encoder_optimizer.step()
        decoder_optimizer.step()
        tick.step(total_loss)
        losses.append(total_loss.item())
        LAST = hits / count
    return losses
