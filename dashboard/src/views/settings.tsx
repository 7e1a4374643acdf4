import { useState } from 'preact/hooks';
import { type AnswerOf, call } from '../api.ts';
import { useLoaded } from '../live.ts';
import { Action, counted, Failure, Input, Loading, Note, Panel, Prose, Status, Table, Title } from '../parts.tsx';

type Setting = AnswerOf<'getSettings'>['settings'][number];

export function SettingsView() {
  const [text, setText] = useState('');
  const [onlyChanged, setOnlyChanged] = useState(false);
  const settings = useLoaded('settings', async signal => (await call('getSettings', { signal })).settings);
  const findings = useLoaded('findings', async signal => (await call('getFindings', { signal })).findings);
  const rows = (settings.value ?? []).filter(
    setting =>
      (!onlyChanged || !setting.is_default) &&
      `${setting.name} ${setting.doc}`.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <>
      <Title text="Settings" />
      <Panel
        title="Checks of this machine"
        actions={<Action text="Check again" work={async () => findings.reload()} />}
      >
        <Failure text={findings.error} />
        {findings.value === undefined ? (
          <Loading unless={findings.error} />
        ) : (
          <Table
            label="Findings"
            rows={findings.value}
            keyOf={finding => finding.name}
            empty="No check has run."
            columns={[
              { title: 'Check', cell: finding => finding.name },
              { title: 'Status', cell: finding => <Status text={finding.status} /> },
              { title: 'Result', cell: finding => finding.text },
              { title: 'Notes', cell: finding => finding.notes.join(' '), isWide: true },
            ]}
          />
        )}
      </Panel>
      <Panel title="Settings in force">
        <div class="filters">
          <Input label="Search" value={text} onInput={setText} type="search" />
          <label class="check">
            <input
              type="checkbox"
              checked={onlyChanged}
              onChange={event => setOnlyChanged(event.currentTarget.checked)}
            />
            Only changed settings
          </label>
        </div>
        <Failure text={settings.error} />
        {settings.value === undefined ? (
          <Loading unless={settings.error} />
        ) : (
          <Groups rows={rows} isOpen={text !== '' || onlyChanged} />
        )}
      </Panel>
    </>
  );
}

/** Settings in a closed group for each first part of a name, because a single table is many screens long. */
function Groups({ rows, isOpen }: { readonly rows: readonly Setting[]; readonly isOpen: boolean }) {
  if (rows.length === 0) return <Note>No matching settings.</Note>;
  const groups = new Map<string, Setting[]>();
  for (const setting of rows) {
    const { name } = setting;
    const group = name.includes('.') ? name.slice(0, name.indexOf('.')) : GENERAL;
    groups.set(group, [...(groups.get(group) ?? []), setting]);
  }
  return (
    <>
      {[...groups].map(([group, settings]) => (
        <details key={group} open={isOpen || groups.size === 1}>
          <summary>
            {group}{' '}
            <span class="count">
              {counted(settings.length, 'setting')}, {settings.filter(setting => !setting.is_default).length} changed
            </span>
          </summary>
          <Table
            label={`Settings: ${group}`}
            rows={settings}
            keyOf={setting => setting.name}
            empty=""
            columns={[
              { title: 'Name', cell: setting => <code>{setting.name}</code> },
              {
                title: 'Value',
                cell: setting => (
                  <code class={setting.is_default ? '' : 'changed'}>{JSON.stringify(setting.value)}</code>
                ),
              },
              { title: 'Meaning', cell: setting => <Prose text={setting.doc} />, isWide: true },
            ]}
          />
        </details>
      ))}
    </>
  );
}

/** Group of settings without a dot in their name. */
const GENERAL = 'service';
