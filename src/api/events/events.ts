import type { FastifyInstance } from 'fastify';
import { invalidRequest } from '../../core/error.ts';
import { EVENT_TYPES, type EventType, isAbout } from '../../core/event.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters, type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import type { EventLog } from '../../events/event-log.ts';
import { type EventFormat, EventReader } from '../../events/event-reader.ts';
import { answerController, onTokenEnd } from '../../http/access/caller.ts';
import { errorDocs } from '../../http/docs.ts';
import { anyText, badQuery, flag, functionName, integer, parsed } from '../query.ts';

/** Subscribes to new points of the metrics history, as JSON. Returns the function that unsubscribes. */
export type OnSample = (listener: (json: string) => void) => () => void;

export interface EventRoutesOptions {
  readonly log: EventLog;
  readonly onSample: OnSample;
  /** Tenants whose tokens see the metrics of the whole service. null: every token does. */
  readonly visibleTo: readonly string[] | null;
}

/** Delay in milliseconds before a browser reconnects. */
const RETRY = 'retry: 2000\n';

const SERVER_SENT: EventFormat = {
  event: ({ type, data }, id) => `id: ${id}\nevent: ${type}\ndata: ${data}\n\n`,
  marker: (type, id) => `id: ${id}\nevent: ${type}\ndata: {"type":"${type}"}\n\n`,
  heartbeat: ':\n\n',
};

const EVENTS_QUERY = {
  types: parsed<ReadonlySet<EventType> | null>(
    { type: 'string', description: `A comma list of ${EVENT_TYPES.join(', ')}; default: all.` },
    null,
    (text, name) => {
      const types = text.split(',');
      const unknown = types.find(type => !EVENT_TYPES.some(known => known === type));
      if (unknown !== undefined) throw badQuery(name, `a comma list of ${EVENT_TYPES.join(', ')}`, text);
      return new Set(types as EventType[]);
    },
  ),
  agent: anyText({ description: 'Only events of this agent: its `instance_id`.' }),
  function: functionName(),
  job: anyText({ description: 'Only events of this job: its `submission_id`.' }),
  recent: integer({ min: 0, max: LIMITS.keptEvents }, 0, {
    description: 'So many of the newest events first; with `Last-Event-ID` those after it instead.',
  }),
  follow: flag('Whether the stream continues after the `recent` events; `false` ends it there.', true),
  metrics: flag('Also `metrics`, the newest point of the history, every 10 seconds; for whom `metrics.tenants` names.'),
};

const DESCRIPTION = `Server-sent events of the caller's tenant, from now on, or after \`Last-Event-ID\`. The first is \`hello\`, or \`reset\` when events
after that id are not here any more (the newest ${LIMITS.keptEvents} of all tenants are kept, and none across a restart): what is shown has to be read anew then.
\`created\`, \`ready\`, \`failed\`, \`restarting\`, \`stopping\`, \`ended\` are about agents and instances of functions, \`scaled\` about how many instances a
version has, \`job\` about a job's new state, \`alarm_failed\` about an alarm that is given up. With several replicas any of them tells what happens on all of them (\`node\`), and
takes the id of any other. The stream ends when the token that opened it holds no longer.`;

/** Adds `GET /api/events`, which streams events as they happen. */
export function addEventsRoute(app: FastifyInstance, { log, onSample, visibleTo }: EventRoutesOptions): void {
  const open = new Set<AbortController>();
  app.addHook('preClose', done => {
    for (const controller of open) controller.abort();
    done();
  });

  app.get<{ Querystring: Sent }>(
    '/api/events',
    {
      config: {
        access: 'read',
        costly: 'follow',
        longLived: true,
        docs: {
          tags: ['events'],
          operationId: 'followEvents',
          summary: 'What happens, as it happens',
          description: DESCRIPTION.replaceAll('\n', ' '),
          querystring: describeParameters(EVENTS_QUERY),
          headers: {
            type: 'object',
            properties: {
              'Last-Event-ID': { type: 'string', description: 'The `id` of the last event that was seen.' },
            },
          },
          response: {
            200: { description: 'Events.', content: { 'text/event-stream': { schema: { type: 'string' } } } },
            429: errorDocs('Too many readers.'),
          },
        },
      },
    },
    (request, reply) => {
      const asked = readParameters<ParametersOf<typeof EVENTS_QUERY>>(EVENTS_QUERY, request.query);
      const { types, metrics, recent, follow } = asked;
      if ([asked.agent, asked.function, asked.job].filter(each => each !== undefined).length > 1)
        throw invalidRequest('invalid query: one of agent, function and job, not two');
      const last = request.headers['last-event-id'];
      const { tenant } = request;
      const { raw } = reply;
      reply.hijack();
      for (const [name, value] of Object.entries(reply.getHeaders()))
        if (value !== undefined) raw.setHeader(name, value);
      raw.setHeader('Content-Type', 'text/event-stream; charset=utf-8');
      raw.setHeader('Cache-Control', 'no-store');
      raw.setHeader('X-Accel-Buffering', 'no');
      const controller = answerController(raw);
      open.add(controller);
      const reader = new EventReader({
        log,
        to: raw,
        isWanted: event =>
          event.type === 'reset' ||
          (event.tenant === tenant && (types === null || types.has(event.type)) && isAbout(event.about, asked)),
        format: SERVER_SENT,
      });
      const isSeen = metrics && (visibleTo === null || visibleTo.includes(tenant));
      const endSamples = isSeen ? onSample(json => reader.offer(`event: metrics\ndata: ${json}\n\n`)) : undefined;
      controller.signal.addEventListener('abort', () => {
        open.delete(controller);
        endSamples?.();
        reader.end();
      });
      onTokenEnd(request, raw, () => controller.abort());
      reader.offer(RETRY);
      if (typeof last !== 'string' || last === '') {
        reader.startWithRecent(recent, follow);
        return;
      }
      const seen = log.seenBy(last);
      if (seen === null) reader.startAtEnd();
      else reader.resume(seen);
    },
  );
}
