import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/**
 * A port on an address of this machine that forwards to a port on its loopback. Pods of a cluster on this
 * machine can reach it. A test can cut it, with or without closing connections.
 */
export class ForwardedPort implements AsyncDisposable {
  readonly port: number;
  /** While true, new connections are accepted but not forwarded. */
  isMute = false;
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  private constructor(server: Server, targetPort: number) {
    this.#server = server;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', caller => {
      this.#keep(caller);
      if (this.isMute) caller.resume();
      else this.#connect(caller, targetPort);
    });
  }

  static async open(host: string, targetPort: number, port = 0): Promise<ForwardedPort> {
    const server = createServer();
    await once(server.listen(port, host), 'listening');
    return new ForwardedPort(server, targetPort);
  }

  /** Simulates a lost network: open connections stay open and lose all later bytes in both directions. */
  goMute(): void {
    this.isMute = true;
    for (const socket of this.#open) socket.unpipe().resume();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await once(this.#server.close(), 'close');
  }

  #connect(caller: Socket, targetPort: number): void {
    const target = connect(targetPort, '127.0.0.1');
    this.#keep(target);
    caller.pipe(target).pipe(caller);
    caller.once('close', () => target.destroy());
    target.once('close', () => caller.destroy());
  }

  #keep(socket: Socket): void {
    this.#open.add(socket);
    socket.on('error', () => undefined).once('close', () => this.#open.delete(socket));
  }
}
