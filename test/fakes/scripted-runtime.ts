import net from 'node:net';
import { encodeFrame, type Frame, FrameReader } from '../../src/runtime/frames.ts';
import { FRAME, type Hello } from '../../src/runtime/protocol.ts';
import { everyFrame } from './every-frame.ts';

/** A runtime whose answers each test decides. `test/suites/runtime.ts` has the behaviour of real ones. */
export class ScriptedRuntime {
  readonly sockets = new Map<Hello['role'], net.Socket>();
  readonly frames: (Frame & { role: Hello['role'] })[] = [];
  onFrame: (frame: Frame, socket: net.Socket) => void = () => undefined;
  answer: (hello: Hello) => Buffer = () =>
    encodeFrame(
      FRAME.HELLO_OK,
      0,
      JSON.stringify({ version: 1, runtime: 'scripted', sdk: 'scripted/1', state: 'ready' }),
    );
  readonly #server = net.createServer(socket => this.#serve(socket));
  readonly #all = new Set<net.Socket>();

  listen(path: string): Promise<void> {
    return new Promise(resolve => {
      this.#server.listen(path, resolve);
    });
  }

  /** Listens on a free port of the loopback interface and returns the port. */
  listenOnTcp(): Promise<number> {
    return new Promise(resolve => {
      this.#server.listen(0, '127.0.0.1', () => resolve((this.#server.address() as net.AddressInfo).port));
    });
  }

  close(): Promise<void> {
    for (const socket of this.#all) socket.destroy();
    return new Promise(resolve => {
      this.#server.close(() => resolve());
    });
  }

  #serve(socket: net.Socket): void {
    this.#all.add(socket);
    let role: Hello['role'] | undefined;
    const reader = new FrameReader(
      everyFrame(frame => {
        if (role === undefined) {
          const hello = JSON.parse(frame.payload.toString()) as Hello;
          role = hello.role;
          this.sockets.set(role, socket);
          socket.write(this.answer(hello));
        } else {
          this.frames.push({ ...frame, role });
          this.onFrame(frame, socket);
        }
      }),
    );
    socket.on('data', chunk => reader.push(chunk));
    socket.on('error', () => undefined);
  }
}
