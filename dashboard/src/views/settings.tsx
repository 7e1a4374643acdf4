import { useState } from 'preact/hooks';
import { call } from '../api.ts';
import { useLoaded } from '../live.ts';
import { Action, Failure, Input, Loading, Panel, Prose, Status, Table, Title } from '../parts.tsx';

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
        title="What works on this machine"
        actions={<Action text="Look again" work={async () => findings.reload()} />}
      >
        <Failure text={findings.error} />
        {findings.value === undefined ? (
          <Loading unless={findings.error} />
        ) : (
          <Table
            label="Findings"
            rows={findings.value}
            keyOf={finding => finding.name}
            empty="Nothing was found."
            columns={[
              { title: 'What', cell: finding => finding.name },
              { title: 'Status', cell: finding => <Status text={finding.status} /> },
              { title: 'Found', cell: finding => finding.text },
              { title: 'Notes', cell: finding => finding.notes.join(' ') },
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
            Only those that were set
          </label>
        </div>
        <Failure text={settings.error} />
        {settings.value === undefined ? (
          <Loading unless={settings.error} />
        ) : (
          <Table
            label="Settings"
            rows={rows}
            keyOf={setting => setting.name}
            empty="No setting matches."
            columns={[
              { title: 'Name', cell: setting => <code>{setting.name}</code> },
              {
                title: 'Value',
                cell: setting => (
                  <code class={setting.is_default ? '' : 'changed'}>{JSON.stringify(setting.value)}</code>
                ),
              },
              { title: 'Means', cell: setting => <Prose text={setting.doc} />, isWide: true },
            ]}
          />
        )}
      </Panel>
    </>
  );
}
