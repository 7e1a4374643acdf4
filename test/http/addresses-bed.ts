import { once } from 'node:events';
import http, { type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';
import type { Expose } from '../../src/core/address.ts';
import type { InstanceSpec } from '../../src/core/instance.ts';
import type { FrontendOptions } from '../../src/frontend/app.ts';
import { SPEC, testFrontend } from './frontend.ts';
import { HostAccess } from './host-access.ts';
import { newInstance } from './memory-instances.ts';
import type { Bed } from './passthrough-bed.ts';

/** A frontend that listens, and agents of which some are exposed; their "inside" is this machine. */
export async function addressBed(options: Partial<FrontendOptions> = {}): Promise<AddressBed> {
  const frontend = testFrontend(options);
  frontend.instances.inside = new HostAccess('/');
  const url = await frontend.listen();
  const { port } = new URL(url);
  return Object.assign(frontend, {
    url,
    port,
    host: (label: string) => `${label}.localhost:${port}`,
    expose: (expose: Expose | null, changes: Partial<InstanceSpec> = {}) => {
      const agent = newInstance({ ...SPEC, ...changes, ...(expose && { expose }) });
      frontend.instances.put(agent);
      return agent.id;
    },
    ask: (host: string, path = '/', how: Ask = {}) => ask(port, host, path, how),
  });
}

export type AddressBed = Bed & {
  readonly port: string;
  /** The `Host` of an address. */
  readonly host: (label: string) => string;
  /** Makes an agent stand there; its id. */
  readonly expose: (expose: Expose | null, changes?: Partial<InstanceSpec>) => string;
  readonly ask: (host: string, path?: string, how?: Ask) => Promise<Answer>;
};

interface Ask {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly message: string | undefined;
}

/** Names below localhost need not resolve here: the connection goes to the frontend, whatever the `Host`. */
async function ask(port: string, host: string, path: string, { method = 'GET', headers, body }: Ask): Promise<Answer> {
  const request = http.request({
    host: '127.0.0.1',
    port,
    path,
    method,
    headers: { Host: host, ...headers },
    agent: false,
  });
  request.end(body);
  const [answer] = await once(request, 'response');
  const sent = await text(answer);
  const isJson = String(answer.headers['content-type']).startsWith('application/json');
  return {
    status: answer.statusCode,
    headers: answer.headers,
    text: sent,
    message: isJson ? JSON.parse(sent).message : undefined,
  };
}
