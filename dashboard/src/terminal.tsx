import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import { useEffect, useRef, useState } from 'preact/hooks';
import '@xterm/xterm/css/xterm.css';
import { socketUrl } from './api.ts';

/**
 * Replaces `style` elements and attributes by style sheets and properties of scripts. The terminal library
 * uses both, and the content security policy forbids them. No other part of the page uses either.
 */
function allowStyles(): void {
  const make = document.createElement.bind(document);
  document.createElement = ((tag: string, options?: ElementCreationOptions) =>
    tag === 'style' ? standIn(make('span')) : make(tag, options)) as typeof document.createElement;
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === 'style' && this instanceof HTMLElement) this.style.cssText = value;
    else set.call(this, name, value);
  };
}
allowStyles();

/** Returns an element whose text is a style sheet of the page until the element is removed. */
function standIn(element: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  element.hidden = true;
  Object.defineProperty(element, 'textContent', { get: () => '', set: (text: string) => sheet.replaceSync(text) });
  const remove = element.remove.bind(element);
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(each => each !== sheet);
    remove();
  };
  return element;
}

/** A shell in a sandbox. Its file is loaded when the tab is opened. */
export default function Shell({ id }: { readonly id: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [state, setState] = useState('connecting');
  const [turn, setTurn] = useState(0);
  // A change of `turn` opens a new shell.
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const terminal = new Terminal({
      fontSize: 13,
      cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
      screenReaderMode: true,
      theme: { background: '#14171f', foreground: '#e4e7ef' },
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(element);
    fit.fit();
    const { cols, rows } = terminal;
    const socket = new WebSocket(
      socketUrl(`/api/agent/${encodeURIComponent(id)}/exec?tty=true&cols=${cols}&rows=${rows}`),
    );
    socket.binaryType = 'arraybuffer';
    const encoder = new TextEncoder();
    socket.onopen = () => {
      setState('connected');
      terminal.focus();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data !== 'string') terminal.write(new Uint8Array(data as ArrayBuffer));
      else {
        const { type, returncode } = JSON.parse(data) as { readonly type: string; readonly returncode?: number };
        if (type === 'exit') setState(`ended with code ${returncode}`);
      }
    };
    socket.onclose = ({ reason }) =>
      setState(before => (before.startsWith('ended') ? before : `closed${reason === '' ? '' : `: ${reason}`}`));
    const isOpen = () => socket.readyState === WebSocket.OPEN;
    terminal.onData(text => {
      if (isOpen()) socket.send(encoder.encode(text));
    });
    terminal.onResize(size => {
      if (isOpen()) socket.send(JSON.stringify({ type: 'resize', cols: size.cols, rows: size.rows }));
    });
    // The shell gets the Tab key. Escape and then Tab leaves the terminal.
    let mayLeave = false;
    terminal.attachCustomKeyEventHandler(event => {
      if (event.type !== 'keydown') return true;
      if (event.key === 'Tab' && mayLeave) return false;
      mayLeave = event.key === 'Escape';
      return true;
    });
    const sizes = new ResizeObserver(() => fit.fit());
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      socket.close();
      terminal.dispose();
    };
  }, [id, turn]);
  return (
    <>
      <p class="note" role="status">
        Terminal: {state}. Escape and then Tab leaves it.{' '}
        {state === 'connected' || state === 'connecting' ? null : (
          <button type="button" onClick={() => setTurn(turn + 1)}>
            Connect again
          </button>
        )}
      </p>
      <div class="shell" ref={box} />
    </>
  );
}
