import type net from 'node:net';
import { expect, test, vi } from 'vitest';
import { unavailable } from '../core/error.ts';
import { type Connection, type ConnectionOwner, ControlLink } from './connection.ts';

function ownerOf() {
  const onClose = vi.fn();
  return { onClose, owner: { onClose } as unknown as ConnectionOwner };
}

test('ControlLink retries on EMFILE and then sends the pending frames', async () => {
  const { owner, onClose } = ownerOf();
  const write = vi.fn();
  const setOwner = vi.fn();
  const socket = { write, destroyed: false } as unknown as net.Socket;
  const shortage = Object.assign(new Error('too many open files'), { code: 'EMFILE' });
  const connect = vi
    .fn<(signal: AbortSignal) => Promise<Connection>>()
    .mockRejectedValueOnce(unavailable('the runtime cannot be reached', { cause: shortage }))
    .mockResolvedValueOnce({ socket, setOwner } as unknown as Connection);
  const link = new ControlLink(owner, connect);
  link.write(Buffer.from('frame'));
  await vi.waitFor(() => expect(setOwner).toHaveBeenCalledOnce());
  expect(write.mock.calls).toEqual([[Buffer.from('frame')]]);
  expect(onClose).not.toHaveBeenCalled();
});

test('ControlLink closes its owner when the runtime refuses the connection', async () => {
  const { owner, onClose } = ownerOf();
  const link = new ControlLink(owner, async () => {
    throw unavailable('the runtime refused the connection');
  });
  link.open();
  await vi.waitFor(() => expect(onClose).toHaveBeenCalledExactlyOnceWith(null));
});

test.each([true, false])(
  'ControlLink reports a violation when more than 1 MiB stays unread (runtime has greeted: %s)',
  async hasGreeted => {
    const { owner, onClose } = ownerOf();
    const kept: Buffer[] = [];
    const socket = {
      write: (frame: Buffer) => kept.push(frame),
      destroyed: false,
      destroy: () => undefined,
      get writableLength() {
        return Buffer.concat(kept).length;
      },
    } as unknown as net.Socket;
    const link = new ControlLink(owner, () => new Promise(() => undefined));
    if (hasGreeted) link.adopt({ socket, setOwner: () => undefined } as unknown as Connection);
    const frame = Buffer.alloc(64 * 1024);
    for (let count = 0; count < 16; count++) link.write(frame);
    expect(onClose).not.toHaveBeenCalled();
    link.write(frame);
    expect(onClose).toHaveBeenCalledExactlyOnceWith(
      'the runtime broke the protocol: it does not read its control connection',
    );
    link.destroy();
  },
);
