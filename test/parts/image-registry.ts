import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { pack } from 'tar-stream';

/** Answer of the registry to a request for the image's only layer. */
export type LayerAnswer = 'given' | 'held back' | 'broken off';

const MANIFEST_TYPE = 'application/vnd.docker.distribution.manifest.v2+json';

/** An image registry on 127.0.0.1, which Docker uses without TLS, with a one-file image `thing:1`. */
export class ImageRegistry implements AsyncDisposable {
  readonly reference: string;
  /** Number of manifest requests; each pull starts with one. */
  pulls = 0;
  answer: LayerAnswer = 'given';
  /** URL of the token service for requests without a token; null when no token is required. */
  realm: string | null = null;
  /** Redirect for requests of this kind; null for none. */
  redirect: { readonly of: 'any' | 'manifest' | 'layer'; readonly to: string } | null = null;
  /** Requests so far, with their tokens. */
  readonly asked: string[] = [];
  readonly #server: Server;
  readonly #blobs: ReadonlyMap<string, Buffer>;
  readonly #manifest: Buffer;
  readonly #layer: string;

  private constructor(server: Server, blobs: ReadonlyMap<string, Buffer>, manifest: Buffer, layer: string) {
    this.#server = server;
    this.#blobs = blobs;
    this.#manifest = manifest;
    this.#layer = layer;
    this.reference = `127.0.0.1:${(server.address() as AddressInfo).port}/thing:1`;
    server.on('request', (request, response) => this.#serve(request, response));
  }

  static async start(): Promise<ImageRegistry> {
    const tar = pack();
    // The content differs each time, so that no daemon has it already.
    tar.entry({ name: 'made-at' }, `${process.hrtime.bigint()}`);
    tar.finalize();
    const layer = await buffer(tar);
    const rootfs = { type: 'layers', diff_ids: [digestOf(layer)] };
    const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', config: {}, rootfs }));
    const describeBlob = (mediaType: string, blob: Buffer) => ({
      mediaType,
      size: blob.length,
      digest: digestOf(blob),
    });
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: MANIFEST_TYPE,
        config: describeBlob('application/vnd.docker.container.image.v1+json', config),
        layers: [describeBlob('application/vnd.docker.image.rootfs.diff.tar.gzip', layer)],
      }),
    );
    const server = createServer();
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const blobs = new Map([layer, config].map(blob => [digestOf(blob), blob]));
    return new ImageRegistry(server, blobs, manifest, digestOf(layer));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(resolve => this.#server.close(resolve));
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { url = '', method } = request;
    this.asked.push(`${url} ${request.headers.authorization ?? ''}`);
    if (this.realm !== null) {
      const challenge = `Bearer realm="${this.realm}",service="registry"`;
      response.writeHead(401, { 'WWW-Authenticate': challenge, 'Content-Type': 'application/json' });
      return void response.end('{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}');
    }
    const kind = url.includes('/manifests/') ? 'manifest' : url.includes('/blobs/') ? 'layer' : 'any';
    if (this.redirect !== null && (this.redirect.of === kind || this.redirect.of === 'any')) {
      return void response.writeHead(307, { Location: this.redirect.to }).end();
    }
    if (url === '/v2/') return void response.end('{}');
    if (url.startsWith('/v2/thing/manifests/')) {
      if (method === 'HEAD') this.pulls += 1;
      response.setHeader('Content-Type', MANIFEST_TYPE);
      response.setHeader('Docker-Content-Digest', digestOf(this.#manifest));
      response.setHeader('Content-Length', this.#manifest.length);
      return void response.end(method === 'HEAD' ? undefined : this.#manifest);
    }
    const digest = url.slice(url.lastIndexOf('/') + 1);
    const blob = this.#blobs.get(digest);
    if (blob === undefined) return void response.writeHead(404).end('{}');
    if (digest === this.#layer && this.answer !== 'given') {
      if (this.answer === 'broken off')
        return void response.writeHead(403).end('{"errors":[{"code":"DENIED","message":"not for you"}]}');
      response.writeHead(200, { 'Content-Length': blob.length });
      return void response.write(blob.subarray(0, 10));
    }
    response.writeHead(200, { 'Content-Length': blob.length }).end(blob);
  }
}

function digestOf(blob: Buffer): string {
  return `sha256:${createHash('sha256').update(blob).digest('hex')}`;
}
