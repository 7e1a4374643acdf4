import { invalidRequest } from './error.ts';

/** A port on which the code listens inside the sandbox. The system allocates the host's port. */
export interface PortSpec {
  readonly protocol: 'tcp' | 'udp';
  readonly port: number;
}

/** OpenAPI schemas of a list of port items and of a single item. */
export const PORTS_SCHEMA = { uniqueItems: true } as const;
export const PORT_SCHEMA = {
  pattern: '^((tcp|udp):)?([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$',
  description: '`[<proto>:]<port>`',
} as const;

const PORT_ITEM = /^(?:(tcp|udp):)?([1-9][0-9]{0,4})$/;

/**
 * Reads port items `[<proto>:]<port>`: `tcp` (default) or `udp`, 1 to 65535, no duplicates. `field` is the
 * path of the list in the request, for the error. Fails with `invalid_request`.
 */
export function parsePorts(items: readonly string[], field: string): PortSpec[] {
  const seen = new Set<string>();
  return items.map((item, index) => {
    const match = PORT_ITEM.exec(item);
    const port = Number(match?.[2]);
    if (!match || port > 65_535) {
      throw invalidRequest(
        `invalid request body: ${field}[${index}] must be [tcp:|udp:]<port> with a port from 1 to 65535, got "${item}"`,
      );
    }
    const protocol = match[1] === 'udp' ? 'udp' : 'tcp';
    const text = formatPort({ protocol, port });
    if (seen.has(text)) throw invalidRequest(`invalid request body: ${field}[${index}] repeats ${text}`);
    seen.add(text);
    return { protocol, port };
  });
}

/** Returns a port as `tcp:22`. */
export function formatPort(port: PortSpec): string {
  return `${port.protocol}:${port.port}`;
}
