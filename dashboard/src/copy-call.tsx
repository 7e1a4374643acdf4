import { useState } from 'preact/hooks';
import { session, tenant } from './api.ts';
import { CALL_LANGUAGES, type CallLanguage, type CallSource, callText } from './call-text.ts';
import { Failure, Note, Text } from './parts.tsx';

type Copied = Omit<CallSource, 'origin' | 'needsToken' | 'tenant'>;

/** Buttons that copy the call of a form as a program or command. The text follows the form. */
export function CopyCall({ source }: { readonly source: Copied }) {
  const [language, setLanguage] = useState<CallLanguage | null>(null);
  const [copied, setCopied] = useState('');
  const made = (asked: CallLanguage) =>
    callText(asked, {
      ...source,
      origin: location.origin,
      needsToken: session.value?.authentication === true,
      tenant: session.value?.tenant === null && tenant.value !== 'default' ? tenant.value : null,
    });
  const copy = async (asked: CallLanguage) => {
    setLanguage(asked);
    const found = made(asked);
    if (!('text' in found)) return;
    try {
      // Undefined if the page came over HTTP from another machine.
      await navigator.clipboard.writeText(found.text);
      setCopied(found.text);
    } catch {
      setCopied('');
    }
  };
  const shown = language === null ? null : made(language);
  return (
    <>
      <fieldset class="choice copy">
        <legend>Copy as</legend>
        {CALL_LANGUAGES.map(each => (
          <button key={each} type="button" aria-pressed={each === language} onClick={() => void copy(each)}>
            {each}
          </button>
        ))}
      </fieldset>
      {shown === null ? null : 'problem' in shown ? (
        <Failure text={shown.problem} />
      ) : (
        <>
          <Text text={shown.text} label={`The call as ${language}`} />
          <Note>
            <span role="status">
              {copied === shown.text ? 'Copied.' : 'Select the text to copy it.'}
              {session.value?.authentication ? ' Put your token into $ROOKERY_TOKEN.' : ''}
            </span>
          </Note>
        </>
      )}
    </>
  );
}
