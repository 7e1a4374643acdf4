import type { JsonObject } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import type { WatchEvent, WatchOptions } from '../../sandbox/files.ts';
import type { Call, Procedures } from './call.ts';
import { toEntry } from './entries.ts';
import { ConnectError } from './errors.ts';
import { flagOf, isPresent, numberOf, textOf } from './fields.ts';
import type { MessageStream } from './message-stream.ts';
import type { PolledWatchers } from './polled-watchers.ts';

const KEEP_ALIVE = { keepalive: {} };
const EVENT_TYPES: Readonly<Record<WatchEvent['type'], string>> = {
  create: 'EVENT_TYPE_CREATE',
  write: 'EVENT_TYPE_WRITE',
  remove: 'EVENT_TYPE_REMOVE',
  rename: 'EVENT_TYPE_RENAME',
  chmod: 'EVENT_TYPE_CHMOD',
};

/** Returns the procedures of `filesystem.Filesystem`. `watchers` has those that clients poll. */
export function filesystemProcedures(watchers: PolledWatchers): Procedures {
  return {
    'filesystem.Filesystem/Stat': { kind: 'unary', run: stat },
    'filesystem.Filesystem/ListDir': { kind: 'unary', run: listDirectory },
    'filesystem.Filesystem/MakeDir': { kind: 'unary', run: makeDirectory },
    'filesystem.Filesystem/Move': { kind: 'unary', run: move },
    'filesystem.Filesystem/Remove': { kind: 'unary', run: remove },
    'filesystem.Filesystem/WatchDir': { kind: 'server-stream', run: watch },
    'filesystem.Filesystem/CreateWatcher': {
      kind: 'unary',
      run: async (message, call) => {
        const open = (signal: AbortSignal) =>
          call.access.watchDirectory(textOf(message, 'path'), readWatch(message, call), signal);
        return { watcherId: await watchers.create(call.sandboxId, open, call.signal) };
      },
    },
    'filesystem.Filesystem/GetWatcherEvents': {
      kind: 'unary',
      run: async (message, call) => {
        const events = await watchers.drainEvents(call.sandboxId, watcherIdOf(message));
        return { events: events.map(toEvent) };
      },
    },
    'filesystem.Filesystem/RemoveWatcher': {
      kind: 'unary',
      run: async (message, call) => {
        watchers.remove(call.sandboxId, watcherIdOf(message));
        return {};
      },
    },
  };
}

async function stat(message: JsonObject, { access, user, signal }: Call): Promise<object> {
  return { entry: toEntry(await access.statFile(textOf(message, 'path'), { user }, signal)) };
}

async function listDirectory(message: JsonObject, { access, user, signal }: Call): Promise<object> {
  const path = textOf(message, 'path');
  const maxDepth = Math.min(numberOf(message, 'depth') || 1, LIMITS.fileList.maxDepth);
  const { maxEntries } = LIMITS.e2bFileList;
  const { entries, truncated } = await access.listTree(path, { user, maxDepth, maxEntries }, signal);
  if (truncated) {
    throw new ConnectError('resource_exhausted', `the directory has more than ${maxEntries} entries`);
  }
  return { entries: entries.map(toEntry) };
}

async function makeDirectory(message: JsonObject, { access, user, signal }: Call): Promise<object> {
  return { entry: toEntry(await access.createDirectory(textOf(message, 'path'), { user }, signal)) };
}

async function move(message: JsonObject, { access, user, signal }: Call): Promise<object> {
  const source = textOf(message, 'source');
  return { entry: toEntry(await access.renameFile(source, textOf(message, 'destination'), { user }, signal)) };
}

async function remove(message: JsonObject, { access, user, signal }: Call): Promise<object> {
  await access.removeFile(textOf(message, 'path'), { user }, signal);
  return {};
}

async function watch(message: JsonObject, call: Call, stream: MessageStream): Promise<void> {
  const path = textOf(message, 'path');
  const directory = await call.access.watchDirectory(path, readWatch(message, call), call.signal);
  const close = () => directory.close();
  call.signal.addEventListener('abort', close, { once: true });
  try {
    await stream.send({ start: {} });
    stream.keepAliveWith(KEEP_ALIVE);
    for await (const event of directory) await stream.send({ filesystem: toEvent(event) });
    if (call.signal.aborted) throw call.signal.reason;
  } finally {
    call.signal.removeEventListener('abort', close);
    directory.close();
  }
}

function readWatch(message: JsonObject, { user }: Call): WatchOptions {
  return {
    user,
    recursive: flagOf(message, 'recursive', false),
    withFacts: flagOf(message, isPresent(message, 'includeEntry') ? 'includeEntry' : 'include_entry', false),
  };
}

function watcherIdOf(message: JsonObject): string {
  return textOf(message, isPresent(message, 'watcherId') ? 'watcherId' : 'watcher_id');
}

function toEvent({ type, name, facts }: WatchEvent): object {
  return { name, type: EVENT_TYPES[type], ...(facts === undefined ? {} : { entry: toEntry(facts) }) };
}
