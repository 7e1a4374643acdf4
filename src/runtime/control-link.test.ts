import type net from 'node:net';
import { expect, test, vi } from 'vitest';
import { unavailable } from '../core/error.ts';
import type { Connection, ConnectionOwner } from './connection.ts';
import { ControlLink } from './control-link.ts';

function ownerOf() {
  const onClose = vi.fn();
  return { onClose, owner: { onClose } as unknown as ConnectionOwner };
}

test('a process without descriptors tries again, and what was to be said is said then', async () => {
  const { owner, onClose } = ownerOf();
  const write = vi.fn();
  const own = vi.fn();
  const socket = { write, destroyed: false } as unknown as net.Socket;
  const shortage = Object.assign(new Error('too many open files'), { code: 'EMFILE' });
  const connect = vi
    .fn<(signal: AbortSignal) => Promise<Connection>>()
    .mockRejectedValueOnce(unavailable('the runtime cannot be reached', { cause: shortage }))
    .mockResolvedValueOnce({ socket, own } as unknown as Connection);
  const link = new ControlLink(owner, connect);
  link.write(Buffer.from('frame'));
  await vi.waitFor(() => expect(own).toHaveBeenCalledOnce());
  expect(write.mock.calls).toEqual([[Buffer.from('frame')]]);
  expect(onClose).not.toHaveBeenCalled();
});

test('a failure that says something of the runtime is an end', async () => {
  const { owner, onClose } = ownerOf();
  const link = new ControlLink(owner, async () => {
    throw unavailable('the runtime refused the connection');
  });
  link.open();
  await vi.waitFor(() => expect(onClose).toHaveBeenCalledExactlyOnceWith(null));
});
