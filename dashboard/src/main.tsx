import { signal } from '@preact/signals';
import { type ComponentChildren, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type Address, addressOf, withQuery } from './address.ts';
import { loadSession, login, logout, may, messageOf, onSessionElsewhere, session, tenant } from './api.ts';
import { follow, isLive, lostAtMs } from './live.ts';
import { Action, Failure, Input, Loading, moment, Note, showCurrent, Title, zoneNow } from './parts.tsx';
import { Search } from './search.tsx';
import './styles.css';
import { AgentView } from './views/agent.tsx';
import { AgentCreateView } from './views/agent-create.tsx';
import { AgentsView } from './views/agents.tsx';
import { CallView } from './views/call.tsx';
import { CallsView } from './views/calls.tsx';
import { ColdStartsView } from './views/cold-starts.tsx';
import { EventsView } from './views/events.tsx';
import { FunctionView } from './views/function.tsx';
import { FunctionCreateView } from './views/function-create.tsx';
import { FunctionsView } from './views/functions.tsx';
import { JobView } from './views/job.tsx';
import { JobsView } from './views/jobs.tsx';
import { NodesView } from './views/nodes.tsx';
import { OverviewView } from './views/overview.tsx';
import { PoolsView } from './views/pools.tsx';
import { SecretsView } from './views/secrets.tsx';
import { SettingsView } from './views/settings.tsx';

const hash = signal(location.hash);
addEventListener('hashchange', () => {
  hash.value = location.hash;
});

/** Changes the query of the address. The change has no entry in the history of the browser. */
function setQuery(query: URLSearchParams): void {
  history.replaceState(history.state, '', withQuery(location.hash || '#/', query));
  hash.value = location.hash;
}

const NAV = [
  ['', 'Overview'],
  ['agents', 'Agents'],
  ['functions', 'Functions'],
  ['jobs', 'Jobs'],
  ['calls', 'Calls'],
  ['events', 'Events'],
  ['cold-starts', 'Cold starts'],
  ['secrets', 'Secrets'],
  ['pools', 'Pools'],
  ['nodes', 'Nodes'],
  ['settings', 'Settings'],
] as const;

function viewOf({ parts, query }: Address): ComponentChildren {
  const [noun = '', id, part = ''] = parts;
  switch (noun) {
    case '':
      return <OverviewView />;
    case 'agents':
      if (id === undefined) return <AgentsView />;
      return id === 'new' ? <AgentCreateView /> : <AgentView key={id} id={id} part={part} />;
    case 'functions':
      if (id === undefined) return <FunctionsView />;
      return id === 'new' ? <FunctionCreateView /> : <FunctionView key={id} name={id} part={part} />;
    case 'jobs':
      return id === undefined ? <JobsView /> : <JobView key={id} id={id} />;
    case 'calls':
      return id === undefined ? <CallsView /> : <CallView key={id} id={id} />;
    case 'events':
      return <EventsView query={query} setQuery={setQuery} />;
    case 'cold-starts':
      return <ColdStartsView />;
    case 'secrets':
      return <SecretsView />;
    case 'pools':
      return <PoolsView />;
    case 'nodes':
      return <NodesView />;
    case 'settings':
      return <SettingsView />;
    default:
      return (
        <>
          <Title text="Not found" />
          <Note>This page does not exist. Choose a page of the menu.</Note>
        </>
      );
  }
}

/** Time until a page that could not read its session asks again. */
const SESSION_RETRY_MS = 2000;

function App() {
  const [problem, setProblem] = useState('');
  useEffect(() => {
    let retry: ReturnType<typeof setTimeout> | undefined;
    const show = async (loading: Promise<void>) => {
      clearTimeout(retry);
      try {
        await loading;
        setProblem('');
      } catch (error) {
        setProblem(messageOf(error));
        retry = setTimeout(() => void show(loadSession()), SESSION_RETRY_MS);
      }
    };
    void show(openSession());
    const unsubscribe = onSessionElsewhere(() => {
      session.value = undefined;
      void show(loadSession());
    });
    return () => {
      clearTimeout(retry);
      unsubscribe();
    };
  }, []);
  if (problem !== '') return <Failure text={problem} />;
  if (session.value === undefined) return <Loading />;
  return session.value === null ? <Login /> : <Console />;
}

/** Logs in with the code of a one-time link. The code is in the fragment, which no server or log sees. */
async function openSession(): Promise<void> {
  const code = /^#\/login\?code=([\w-]+)$/.exec(location.hash)?.[1];
  if (code !== undefined) {
    history.replaceState(null, '', '#/');
    hash.value = '#/';
    try {
      await login({ code });
      return;
    } catch {
      // The browser may have a session already. Otherwise the page asks for a token.
    }
  }
  await loadSession();
}

function Login() {
  const [token, setToken] = useState('');
  const [error, setError] = useState('');
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await login({ token: token.trim() });
    } catch (problem) {
      setError(messageOf(problem));
    }
  };
  return (
    <main class="login">
      <Title text="Rookery" />
      <form onSubmit={event => void submit(event)}>
        <Input
          label="Token"
          type="password"
          value={token}
          onInput={setToken}
          isRequired
          hint="Paste a token, or run “rookery dashboard” and open its link."
        />
        <button type="submit" class="main">
          Log in
        </button>
        <Failure text={error} />
      </form>
    </main>
  );
}

const THEMES = ['auto', 'light', 'dark'] as const;
const theme = signal(localStorage.getItem('theme') ?? 'auto');

function setTheme(next: string): void {
  theme.value = next;
  localStorage.setItem('theme', next);
  if (next === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
}
setTheme(theme.value);

function Console() {
  useEffect(() => {
    const controller = new AbortController();
    void follow(controller.signal);
    return () => controller.abort();
  }, [tenant.value]);
  const address = addressOf(hash.value);
  const { parts } = address;
  const now = session.value;
  const path = parts.join('/');
  useEffect(() => {
    // A screen reader continues here after a change of the page.
    document.querySelector<HTMLElement>('main')?.focus();
    showCurrent(document.querySelector('header nav'));
    scrollTo(0, 0);
  }, [path]);
  return (
    <div class="console">
      <button type="button" class="skip" onClick={() => document.querySelector<HTMLElement>('main')?.focus()}>
        Skip to the content
      </button>
      <header>
        <a class="brand" href="#/">
          Rookery
        </a>
        <Search
          pages={NAV.filter(([noun]) => isOffered(noun)).map(([noun, name]) => {
            return { kind: 'page', name, more: '', href: `#/${noun}` };
          })}
        />
        <nav aria-label="Main">
          {NAV.filter(([noun]) => isOffered(noun)).map(([noun, title]) => (
            <a key={noun} href={`#/${noun}`} aria-current={parts[0] === noun ? 'page' : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <div class="who">
          <span class={isLive.value ? 'live on' : 'live'} role="status">
            {isLive.value ? 'live' : 'not connected'}
          </span>
          <label>
            <span>Theme</span>
            <select value={theme.value} onChange={event => setTheme(event.currentTarget.value)}>
              {THEMES.map(each => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          {now?.tenant === null ? <TenantChoice /> : <span>{now?.tenant}</span>}
          <span>{now?.role}</span>
          <span class="faint">{now?.version}</span>
          <span>Times: {zoneNow()}</span>
          {now?.authentication ? <Action text="Log out" work={logout} /> : null}
        </div>
      </header>
      <main id="main" tabIndex={-1} class={lostAtMs.value === null ? undefined : 'stale'}>
        {lostAtMs.value === null ? null : (
          <p class="away" role="alert">
            The service does not answer. This page is from {moment(lostAtMs.value)} and continues when the service is
            back.
          </p>
        )}
        {viewOf(address)}
      </main>
    </div>
  );
}

function isOffered(noun: string): boolean {
  if (noun === 'settings') return may('write') && session.value?.sees_service === true;
  return noun !== 'nodes' || session.value?.sees_service === true;
}

function TenantChoice() {
  return (
    <label>
      <span>Tenant</span>
      <input
        value={tenant.value}
        spellcheck={false}
        onChange={event => {
          const next = event.currentTarget.value.trim() || 'default';
          sessionStorage.setItem('tenant', next);
          tenant.value = next;
        }}
      />
    </label>
  );
}

render(<App />, document.getElementById('app') as HTMLElement);
