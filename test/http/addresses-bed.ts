import { once } from 'node:events';
import http, { type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';
import type { FrontendOptions } from '../../src/api/frontend-app.ts';
import type { Expose } from '../../src/core/address.ts';
import type { InstanceSpec } from '../../src/core/instance.ts';
import { SPEC, testFrontend } from './frontend.ts';
import { HostAccess } from './host-access.ts';
import { newInstance } from './memory-instances.ts';
import type { Bed } from './passthrough-bed.ts';

/** Starts a frontend for agents with and without public ports. The host stands in for their sandboxes. */
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
  /** Returns the `Host` header for an address label. */
  readonly host: (label: string) => string;
  /** Adds an agent, exposed unless `expose` is null, and returns its id. */
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

/** Sends a request with this `Host` to the frontend. Always connects to 127.0.0.1, without DNS. */
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
  const isJson = sent !== '' && String(answer.headers['content-type']).startsWith('application/json');
  return {
    status: answer.statusCode,
    headers: answer.headers,
    text: sent,
    message: isJson ? JSON.parse(sent).message : undefined,
  };
}
