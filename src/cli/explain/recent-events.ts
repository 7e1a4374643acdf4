import { serverEvents } from '../../../clients/typescript/src/server-events.ts';
import type { EventSubject } from '../../core/event.ts';
import { LIMITS } from '../../core/limits.ts';
import type { ShownEvent } from '../events.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printWarning } from '../shared/print.ts';

/** A service of an older version does not end the stream. */
const TIMEOUT_MS = 10_000;

/**
 * Returns the stored events of `types` about `subject` that `isWanted` accepts, oldest first. Events only add
 * to an explanation, so a failure is a warning.
 */
export async function readRecentEvents(
  io: Io,
  client: Client,
  types: readonly string[],
  subject: EventSubject,
  isWanted: (event: ShownEvent) => boolean = () => true,
): Promise<readonly ShownEvent[]> {
  const query = new URLSearchParams({
    ...{ recent: String(LIMITS.keptEvents), follow: 'false', types: types.join(',') },
    ...subject,
  });
  const found: ShownEvent[] = [];
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await client.stream('GET', `/api/events?${query}`, {
      headers: { accept: 'text/event-stream' },
      signal,
    });
    for await (const { type, data } of serverEvents(answer)) {
      if (!types.includes(type)) continue;
      const event = JSON.parse(data) as ShownEvent;
      if (isWanted(event)) found.push(event);
    }
  } catch (error) {
    if (io.signal.aborted) throw new CliError('Interrupted.');
    printWarning(io, `the events could not be read (${(error as Error).message})`);
  }
  return found;
}
