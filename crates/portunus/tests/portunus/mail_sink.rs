//! A mail server that keeps what it gets.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A mail server without encryption, and its mails as they came.
pub(crate) struct MailSink {
    pub(crate) url: String,
    mails: Arc<Mutex<Vec<String>>>,
}

impl MailSink {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("smtp://{}", listener.local_addr().unwrap());
        let mails = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&mails);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept)));
            }
        });
        Self { url, mails }
    }

    /// The mails, without the line breaks of their encoding.
    pub(crate) fn mails(&self) -> Vec<String> {
        self.mails.lock().unwrap().iter().map(|mail| mail.replace("=\r\n", "")).collect()
    }
}

async fn serve(stream: TcpStream, mails: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    write.write_all(b"220 sink\r\n").await.ok()?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let answer = match line.get(..4)?.to_ascii_uppercase().as_str() {
            "DATA" => {
                write.write_all(b"354 go on\r\n").await.ok()?;
                let mut mail = String::new();
                while !mail.ends_with("\r\n.\r\n") {
                    if lines.read_line(&mut mail).await.ok()? == 0 {
                        return None;
                    }
                }
                mails.lock().unwrap().push(mail);
                "250 kept\r\n"
            }
            "QUIT" => "221 bye\r\n",
            _ => "250 sink\r\n",
        };
        write.write_all(answer.as_bytes()).await.ok()?;
    }
}
