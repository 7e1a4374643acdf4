import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** A port of an address of this machine that leads to one of its loopback: what pods of a cluster on this machine can reach, and what can be cut. */
export class ForwardedPort implements AsyncDisposable {
  readonly port: number;
  readonly #server: Server;
  readonly #open: Set<Socket>;

  private constructor(server: Server, open: Set<Socket>) {
    this.#server = server;
    this.#open = open;
    this.port = (server.address() as AddressInfo).port;
  }

  static async open(host: string, targetPort: number, port = 0): Promise<ForwardedPort> {
    const open = new Set<Socket>();
    const server = createServer(caller => {
      const target = connect(targetPort, '127.0.0.1');
      for (const socket of [caller, target]) {
        open.add(socket);
        socket.on('error', () => undefined).once('close', () => open.delete(socket));
      }
      caller.pipe(target).pipe(caller);
      caller.once('close', () => target.destroy());
      target.once('close', () => caller.destroy());
    });
    await once(server.listen(port, host), 'listening');
    return new ForwardedPort(server, open);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await once(this.#server.close(), 'close');
  }
}
